package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// reader collects the faults while a file is read, and the line of each path.
type reader struct {
	file        string
	env         func(string) (string, bool)
	lines       map[string]int // path to line
	faults      Faults
	faulty      map[string]bool   // paths that have a fault
	corrections map[string]string // path of a misspelt setting to the name that it is read as
}

func (r *reader) fault(path string, line int, problem string, args ...any) {
	r.faulty[path] = true
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Path: path, Problem: fmt.Sprintf(problem, args...)})
}

// lineOf returns the line of a path, or else of the nearest section around it.
func (r *reader) lineOf(path string) int {
	for path != "" {
		if line, ok := r.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// knownFaulty reports whether reading found a fault at this path or around it: the value in the Config is then a
// default and not what was written.
func (r *reader) knownFaulty(path string) bool {
	for path != "" {
		if r.faulty[path] {
			return true
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return false
}

// section is one mapping of the file. Each key that is read becomes known; done reports all others.
type section struct {
	r     *reader
	path  string
	keys  []string
	nodes map[string]ast.Node
	known map[string]bool
}

// section reads a node as a mapping; a missing or null node is an empty mapping.
func (r *reader) section(path string, node ast.Node) *section {
	s := &section{r: r, path: path, nodes: map[string]ast.Node{}, known: map[string]bool{}}
	if node == nil {
		return s
	}
	r.lines[path] = lineOf(node)
	pairs, ok := node.(ast.MapNode)
	if _, null := node.(*ast.NullNode); null {
		return s
	}
	if !ok {
		r.fault(path, lineOf(node), "must contain settings (key: value); found %s", kindOf(node))
		return s
	}
	for each := pairs.MapRange(); each.Next(); {
		key, line := each.Key().GetToken().Value, lineOf(each.Key())
		at := join(path, key)
		if _, merge := each.Key().(*ast.MergeKeyNode); merge {
			r.fault(at, line, "merge keys are not supported; write the settings out")
			continue
		}
		if name, misspelt := r.corrections[at]; misspelt {
			r.fault(at, line, "unknown setting; did you mean %s?", name)
			key, at = name, join(path, name)
		}
		if _, repeated := s.nodes[key]; repeated {
			r.fault(at, line, "is set twice, first on line %d; keep one", r.lines[at])
			continue
		}
		r.lines[at] = line
		s.nodes[key] = each.Value()
		s.keys = append(s.keys, key)
	}
	return s
}

func (s *section) at(key string) string { return join(s.path, key) }

func (s *section) has(key string) bool {
	s.known[key] = true
	_, ok := s.nodes[key]
	return ok
}

// done reports every key that was not read. If its name is close to that of a setting which is not set, the
// correction is noted.
func (s *section) done() {
	names := slices.Sorted(maps.Keys(s.known))
	unset := slices.DeleteFunc(slices.Clone(names), s.has)
	for _, key := range s.keys {
		if s.known[key] {
			continue
		}
		if name := nearest(key, unset); name != "" {
			s.r.corrections[s.at(key)] = name
			unset = slices.DeleteFunc(unset, func(key string) bool { return key == name })
		}
		s.r.fault(s.at(key), s.r.lines[s.at(key)], "unknown setting; known here: %s", strings.Join(names, ", "))
	}
}

// child returns the mapping under a key.
func (s *section) child(key string) *section {
	s.known[key] = true
	return s.r.section(s.at(key), s.nodes[key])
}

// each reads a mapping of names to mappings.
func (s *section) each(key string, read func(name string, entry *section)) {
	all := s.child(key)
	for _, name := range all.keys {
		read(name, all.child(name))
	}
}

// items returns the items of a list. A single value is a fault, so that it is clear where a second one goes.
func (s *section) items(key string) []ast.Node {
	if !s.has(key) {
		return nil
	}
	list, ok := s.nodes[key].(*ast.SequenceNode)
	if !ok {
		s.r.fault(s.at(key), s.r.lines[s.at(key)], "must be a list; found %s", kindOf(s.nodes[key]))
		return nil
	}
	for i, node := range list.Values {
		s.r.lines[s.item(key, i)] = lineOf(node)
	}
	return list.Values
}

func (s *section) item(key string, i int) string { return fmt.Sprintf("%s[%d]", s.at(key), i) }

// scalar returns a single value with its variables replaced, and its text in the file: faults show the text, never
// the value.
func (r *reader) scalar(path string, node ast.Node) (value, text string, ok bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		text = node.GetToken().Value
	default:
		r.fault(path, lineOf(node), "must be a single value; found %s", kindOf(node))
		return "", "", false
	}
	if strings.ContainsFunc(text, isControl) {
		r.fault(path, lineOf(node), "contains a line break or another control character; remove it")
		return "", "", false
	}
	value, problem := expand(text, r.env)
	if problem != "" {
		r.fault(path, lineOf(node), "%s", problem)
		return "", "", false
	}
	return value, text, true
}

// read reads one setting; fallback is returned if it is left out or has a fault. A parser's error about the text
// of the file is reported; one about the value of a variable could show it, and is not.
func read[T any](s *section, key string, fallback T, parse func(string) (T, error)) T {
	if !s.has(key) {
		return fallback
	}
	value, text, ok := s.r.scalar(s.at(key), s.nodes[key])
	if !ok {
		return fallback
	}
	parsed, err := parse(value)
	if err == nil {
		return parsed
	}
	problem := err.Error()
	if value != text {
		problem = fmt.Sprintf("the value of %s is not valid here; it is not shown, since it may be secret", text)
	}
	s.r.fault(s.at(key), s.r.lines[s.at(key)], "%s", problem)
	return fallback
}

func (s *section) text(key, fallback string) string {
	return read(s, key, fallback, func(v string) (string, error) {
		if v == "" {
			return "", fmt.Errorf("is empty; give it a value or leave it out")
		}
		return v, nil
	})
}

func (s *section) duration(key string, fallback time.Duration) time.Duration {
	return read(s, key, fallback, parseDuration)
}

func (s *section) durations(key string, fallback []time.Duration) []time.Duration {
	nodes := s.items(key)
	if nodes == nil {
		return fallback
	}
	all := []time.Duration{}
	for i, node := range nodes {
		value, _, ok := s.r.scalar(s.item(key, i), node)
		if !ok {
			return fallback
		}
		d, err := parseDuration(value)
		if err != nil {
			s.r.fault(s.item(key, i), lineOf(node), "%s", err)
			return fallback
		}
		all = append(all, d)
	}
	return all
}

func (s *section) size(key string, fallback int64) int64 {
	return read(s, key, fallback, parseSize)
}

func (s *section) integer(key string, fallback int) int {
	return read(s, key, fallback, func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%q is not a whole number of 0 or more", v)
		}
		return n, nil
	})
}

func (s *section) boolean(key string) bool {
	return read(s, key, false, func(v string) (bool, error) {
		if v != "true" && v != "false" {
			return false, fmt.Errorf("%q is neither true nor false", v)
		}
		return v == "true", nil
	})
}

func (s *section) choice(key, fallback string, allowed ...string) string {
	return read(s, key, fallback, func(v string) (string, error) {
		if !slices.Contains(allowed, v) {
			return "", fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", "))
		}
		return v, nil
	})
}

// timestamp reads an RFC 3339 time.
func (s *section) timestamp(key string) time.Time {
	return read(s, key, time.Time{}, func(v string) (time.Time, error) {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is not a time; write it like 2031-03-01T00:00:00Z", v)
		}
		return t.UTC(), nil
	})
}

// secret reads one secret; the check reports an empty one.
func (s *section) secret(key string) Secret {
	if !s.has(key) {
		return Secret{}
	}
	value, _, _ := s.r.scalar(s.at(key), s.nodes[key])
	return NewSecret(value)
}

func (s *section) secrets(key string) []Secret {
	var all []Secret
	for i, node := range s.items(key) {
		value, _, _ := s.r.scalar(s.item(key, i), node)
		all = append(all, NewSecret(value))
	}
	return all
}

func lineOf(node ast.Node) int {
	if node == nil || node.GetToken() == nil || node.GetToken().Position == nil {
		return 0
	}
	return node.GetToken().Position.Line
}

func kindOf(node ast.Node) string {
	switch node.(type) {
	case *ast.NullNode:
		return "nothing"
	case ast.MapNode:
		return "settings"
	case *ast.SequenceNode:
		return "a list"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		return "an anchor, alias or tag, which are not supported"
	case *ast.LiteralNode:
		return "a multi-line text"
	default:
		return "a single value"
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

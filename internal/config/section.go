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

// reader collects what is wrong while a file is read, and where everything stood.
type reader struct {
	file   string
	env    func(string) (string, bool)
	lines  map[string]int // path to line
	faults Faults
	faulty map[string]bool   // paths that have a fault of their own
	meant  map[string]string // paths of misspelt settings, and what they are read as
}

func (r *reader) fault(path string, line int, problem string, args ...any) {
	r.faulty[path] = true
	r.faults = append(r.faults, Fault{File: r.file, Line: line, Path: path, Problem: fmt.Sprintf(problem, args...)})
}

// lineOf is where a path stood, or else where the nearest thing around it did.
func (r *reader) lineOf(path string) int {
	for path != "" {
		if line, ok := r.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// knownFaulty tells whether reading found this path, or something around it, at fault: what stands in
// the Config there is a default that nobody wrote.
func (r *reader) knownFaulty(path string) bool {
	for path != "" {
		if r.faulty[path] {
			return true
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return false
}

// section is one mapping of the file. Each key that is asked for is thereby known; done refuses the rest.
type section struct {
	r     *reader
	path  string
	keys  []string
	nodes map[string]ast.Node
	asked map[string]bool
}

// section reads a node as a mapping; a node that is missing or empty is an empty one.
func (r *reader) section(path string, node ast.Node) *section {
	s := &section{r: r, path: path, nodes: map[string]ast.Node{}, asked: map[string]bool{}}
	if node == nil {
		return s
	}
	r.lines[path] = lineOf(node)
	pairs, ok := node.(ast.MapNode)
	if _, null := node.(*ast.NullNode); null {
		return s
	}
	if !ok {
		r.fault(path, lineOf(node), "must hold settings (key: value); found %s", kindOf(node))
		return s
	}
	for each := pairs.MapRange(); each.Next(); {
		key, line := each.Key().GetToken().Value, lineOf(each.Key())
		at := join(path, key)
		if _, merge := each.Key().(*ast.MergeKeyNode); merge {
			r.fault(at, line, "merge keys are not read; write the settings out")
			continue
		}
		if meant, misspelt := r.meant[at]; misspelt {
			r.fault(at, line, "unknown setting; did you mean %s?", meant)
			key, at = meant, join(path, meant)
		}
		if _, twice := s.nodes[key]; twice {
			r.fault(at, line, "stands here a second time, first on line %d; keep one", r.lines[at])
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
	s.asked[key] = true
	_, ok := s.nodes[key]
	return ok
}

// done refuses every key that nobody asked for. One that is nearly the name of a setting which is left
// out is noted as meant.
func (s *section) done() {
	known := slices.Sorted(maps.Keys(s.asked))
	open := slices.DeleteFunc(slices.Clone(known), s.has)
	for _, key := range s.keys {
		if s.asked[key] {
			continue
		}
		if meant := nearest(key, open); meant != "" {
			s.r.meant[s.at(key)] = meant
			open = slices.DeleteFunc(open, func(key string) bool { return key == meant })
		}
		s.r.fault(s.at(key), s.r.lines[s.at(key)], "unknown setting; known here: %s", strings.Join(known, ", "))
	}
}

// child is the mapping under a key.
func (s *section) child(key string) *section {
	s.asked[key] = true
	return s.r.section(s.at(key), s.nodes[key])
}

// each reads a mapping of names to mappings.
func (s *section) each(key string, read func(name string, entry *section)) {
	all := s.child(key)
	for _, name := range all.keys {
		read(name, all.child(name))
	}
}

// items are the parts of a list; a single value is refused, so that a second one finds its place.
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

// scalar is a single value with its variables replaced, beside the text that stood in the file: faults
// show the text, never the value.
func (r *reader) scalar(path string, node ast.Node) (value, text string, ok bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		text = node.GetToken().Value
	default:
		r.fault(path, lineOf(node), "must be a single value; found %s", kindOf(node))
		return "", "", false
	}
	if strings.ContainsFunc(text, isControl) {
		r.fault(path, lineOf(node), "holds a line break or another control character; remove it")
		return "", "", false
	}
	value, problem := expand(text, r.env)
	if problem != "" {
		r.fault(path, lineOf(node), "%s", problem)
		return "", "", false
	}
	return value, text, true
}

// read reads one setting, or keeps the default where it is left out or at fault. A parser's complaint
// about the text of the file is told; one about a variable's value could show it, and is not.
func read[T any](s *section, key string, otherwise T, parse func(string) (T, error)) T {
	if !s.has(key) {
		return otherwise
	}
	value, text, ok := s.r.scalar(s.at(key), s.nodes[key])
	if !ok {
		return otherwise
	}
	parsed, err := parse(value)
	if err == nil {
		return parsed
	}
	problem := err.Error()
	if value != text {
		problem = fmt.Sprintf("what %s stands for does not fit here; it is not shown, since it may be secret", text)
	}
	s.r.fault(s.at(key), s.r.lines[s.at(key)], "%s", problem)
	return otherwise
}

func (s *section) text(key, otherwise string) string {
	return read(s, key, otherwise, func(v string) (string, error) {
		if v == "" {
			return "", fmt.Errorf("is empty; give it a value or leave it out")
		}
		return v, nil
	})
}

func (s *section) duration(key string, otherwise time.Duration) time.Duration {
	return read(s, key, otherwise, parseDuration)
}

func (s *section) durations(key string, otherwise []time.Duration) []time.Duration {
	nodes := s.items(key)
	if nodes == nil {
		return otherwise
	}
	all := []time.Duration{}
	for i, node := range nodes {
		value, _, ok := s.r.scalar(s.item(key, i), node)
		if !ok {
			return otherwise
		}
		d, err := parseDuration(value)
		if err != nil {
			s.r.fault(s.item(key, i), lineOf(node), "%s", err)
			return otherwise
		}
		all = append(all, d)
	}
	return all
}

func (s *section) size(key string, otherwise int64) int64 {
	return read(s, key, otherwise, parseSize)
}

func (s *section) integer(key string, otherwise int) int {
	return read(s, key, otherwise, func(v string) (int, error) {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%q is no whole number from 0 up", v)
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

func (s *section) choice(key, otherwise string, allowed ...string) string {
	return read(s, key, otherwise, func(v string) (string, error) {
		if !slices.Contains(allowed, v) {
			return "", fmt.Errorf("%q is not one of %s", v, strings.Join(allowed, ", "))
		}
		return v, nil
	})
}

// moment reads an RFC 3339 time.
func (s *section) moment(key string) time.Time {
	return read(s, key, time.Time{}, func(v string) (time.Time, error) {
		t, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return time.Time{}, fmt.Errorf("%q is no time; write it like 2031-03-01T00:00:00Z", v)
		}
		return t.UTC(), nil
	})
}

// secret reads one secret; an empty one is left to the check, which refuses it.
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
		return "an anchor, alias or tag, which are not read"
	case *ast.LiteralNode:
		return "a text of several lines"
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

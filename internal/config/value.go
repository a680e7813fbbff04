package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// parseDuration reads what Go reads, and whole days: 30s, 2m, 1h30m, 24h, 400d.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/day) {
			return 0, fmt.Errorf("%q is no duration; write it like 30s, 2m, 24h or 400d", text)
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration; write it like 30s, 2m, 24h or 400d", text)
	}
	return d, nil
}

// showDuration writes a duration the way a person would have: 400d, not 9600h0m0s.
func showDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, idle := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, idle) {
			text = text[:len(text)-2]
		}
	}
	return text
}

var sizeText = regexp.MustCompile(`^([0-9]{1,9})(B|KiB|MiB)$`)

func parseSize(text string) (int64, error) {
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is no size; write it like 4096B, 256KiB or 1MiB", text)
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // nine digits fit
	switch m[2] {
	case "KiB":
		n <<= 10
	case "MiB":
		n <<= 20
	}
	return n, nil
}

var rateText = regexp.MustCompile(`^([0-9]{1,7})/(s|m|h)$`)

func parseRate(text string) (Rate, error) {
	m := rateText.FindStringSubmatch(text)
	if m == nil {
		return Rate{}, fmt.Errorf("%q is no rate; write it like 50/s, 100/m or 1000/h", text)
	}
	n, _ := strconv.Atoi(m[1]) // seven digits fit
	if n == 0 {
		return Rate{}, fmt.Errorf("%q would send nothing for ever; leave the rate out for no limit", text)
	}
	return Rate{Events: n, Per: map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]}, nil
}

var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}|\$\{`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces every ${NAME} once; what a variable holds is not looked at again. $${ stands for ${
// itself. problem names the variables that are missing, and never a value.
func expand(text string, env func(string) (string, bool)) (value, problem string) {
	value = variable.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$${" {
			return "${"
		}
		name := strings.TrimSuffix(strings.TrimPrefix(found, "${"), "}")
		if !variableName.MatchString(name) {
			problem = "a variable is written ${NAME}, with letters, digits and underscores; write $${ for a plain ${"
			return ""
		}
		held, ok := env(name)
		switch {
		case !ok:
			problem = fmt.Sprintf("the environment variable %s is not set; set it before the start", name)
		case held == "":
			problem = fmt.Sprintf("the environment variable %s is empty; give it a value", name)
		case strings.ContainsFunc(held, isControl):
			problem = fmt.Sprintf("the environment variable %s holds a line break or another control character; "+
				"was it read from a file with its last line end?", name)
		}
		return held
	})
	return value, problem
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

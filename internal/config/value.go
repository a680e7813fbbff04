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

// parseDuration reads a Go duration or whole days: 30s, 2m, 1h30m, 24h, 400d.
func parseDuration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/day) {
			return 0, fmt.Errorf("%q is not a duration; write it like 30s, 2m, 24h or 400d", text)
		}
		return time.Duration(n) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration; write it like 30s, 2m, 24h or 400d", text)
	}
	return d, nil
}

// showDuration formats a duration as it would be written in the file: 400d, not 9600h0m0s.
func showDuration(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

var sizeText = regexp.MustCompile(`^([0-9]{1,9})(B|KiB|MiB)$`)

func parseSize(text string) (int64, error) {
	m := sizeText.FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("%q is not a size; write it like 4096B, 256KiB or 1MiB", text)
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
		return Rate{}, fmt.Errorf("%q is not a rate; write it like 50/s, 100/m or 1000/h", text)
	}
	n, _ := strconv.Atoi(m[1]) // seven digits fit
	if n == 0 {
		return Rate{}, fmt.Errorf("%q would send nothing; leave the rate out for no limit", text)
	}
	return Rate{Events: n, Per: map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[m[2]]}, nil
}

var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}|\$\{`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces every ${NAME} once; the value of a variable is not expanded again. $${ is an escaped ${. problem
// names a variable that is missing, and never contains a value.
func expand(text string, env func(string) (string, bool)) (value, problem string) {
	value = variable.ReplaceAllStringFunc(text, func(match string) string {
		if match == "$${" {
			return "${"
		}
		name := strings.TrimSuffix(strings.TrimPrefix(match, "${"), "}")
		if !variableName.MatchString(name) {
			problem = "a variable is written ${NAME}, with letters, digits and underscores; write $${ for a literal ${"
			return ""
		}
		v, ok := env(name)
		switch {
		case !ok:
			problem = fmt.Sprintf("the environment variable %s is not set; set it before the start", name)
		case v == "":
			problem = fmt.Sprintf("the environment variable %s is empty; give it a value", name)
		case strings.ContainsFunc(v, isControl):
			problem = fmt.Sprintf("the environment variable %s contains a line break or another control character; "+
				"was it read from a file with the line break at its end?", name)
		}
		return v
	})
	return value, problem
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

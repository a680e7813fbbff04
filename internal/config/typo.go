package config

// nearest is the name that a misspelt one was probably meant to be; empty when none is near enough.
func nearest(written string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		d := slips(written, name)
		if d == 2 && min(len(written), len(name)) < 6 {
			continue // two slips in a short word make another word
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// slips counts how many letters were added, left out, changed or swapped with their neighbour between two
// names; lengths that differ by more than two are not compared (this is the restricted Damerau-Levenshtein
// distance).
func slips(a, b string) int {
	if off := len(a) - len(b); off < -2 || off > 2 {
		return max(off, -off)
	}
	var before []int // the row before the last
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			changed := last[j]
			if a[i] != b[j] {
				changed++
			}
			row[j+1] = min(changed, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

package config

// nearest returns the name that a misspelt one probably means, or "" if none is close enough.
func nearest(written string, names []string) string {
	best, least := "", 3
	for _, name := range names {
		d := editDistance(written, name)
		if d == 2 && min(len(written), len(name)) < 6 {
			continue // with two edits a short word becomes another word
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// editDistance is the restricted Damerau-Levenshtein distance: the number of letters added, left out, changed or
// swapped with their neighbour. Names whose lengths differ by more than two are not compared.
func editDistance(a, b string) int {
	if off := len(a) - len(b); off < -2 || off > 2 {
		return max(off, -off)
	}
	var before []int // the row before last
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

package display

import (
	"fmt"
	"strings"
)

// DidYouMean returns the known name that the user of an unknown name probably meant, or "". hint is
// for the error about the unknown name, and lists all known names if none is like it.
func DidYouMean(unknown string, known []string) (meant, hint string) {
	limit := 1 + len(unknown)/3
	for _, candidate := range known {
		if d := distance(strings.ToLower(unknown), candidate); d <= limit {
			meant, limit = candidate, d-1
		}
	}
	switch {
	case meant != "":
		return meant, fmt.Sprintf("did you mean %s?", meant)
	case len(known) == 0:
		return "", "there are none"
	}
	return "", "want one of " + strings.Join(known, ", ")
}

// distance is the number of bytes to insert, delete or replace to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

package throttle

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/script"
)

// Need is the number of permits that a call needs of one limit, for one Key. The empty Key is
// valid, and suits a limit that needs no keys. The zero Cost means 1.
type Need struct {
	Limit string
	Key   string
	Cost  int
}

// Normalize returns the needs sorted, with a Cost of 1 instead of 0, and with needs of the same
// limit and key added up. So equal sets of needs become equal slices. It returns an error if a need
// is invalid, or if there is no need.
func Normalize(needs ...Need) ([]Need, error) {
	needs = slices.Clone(needs)
	for i := range needs {
		if needs[i].Cost == 0 {
			needs[i].Cost = 1
		}
	}
	return normalize(needs)
}

// normalize is like Normalize, but keeps a Cost of 0, which means that the meter is only read. It
// adds up the needs of a meter, because each need alone would be compared with all free permits.
func normalize(needs []Need) ([]Need, error) {
	if len(needs) == 0 {
		return nil, errors.New("needs: want at least one limit")
	}
	if len(needs) > script.MaxMeters {
		return nil, fieldError("needs", len(needs), "want at most %d of one call", script.MaxMeters)
	}
	for _, n := range needs {
		if n.Cost < 0 || n.Cost > math.MaxInt32 {
			return nil, fieldError("cost", n.Cost, "want 0 to %d of limit %s", math.MaxInt32, n.Limit)
		}
		if err := validMeter(n.Limit, n.Key); err != nil {
			return nil, err
		}
	}
	if len(needs) == 1 {
		return needs, nil
	}
	sorted := slices.Clone(needs)
	slices.SortStableFunc(sorted, func(a, b Need) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
	})
	merged := sorted[:1]
	for _, n := range sorted[1:] {
		last := &merged[len(merged)-1]
		if n.Limit == last.Limit && n.Key == last.Key {
			last.Cost += n.Cost
		} else {
			merged = append(merged, n)
		}
	}
	return merged, nil
}

// appendMeters appends the limit and key of each need to the arguments of a script.
func appendMeters(args []any, needs []Need) []any {
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	return args
}

// isName reports whether text is 1 to 100 letters, digits, or _ . : -. Other characters are
// separators: | between a limit and its key, line breaks between meters, commas between apps.
func isName(text string) bool {
	for i := range len(text) {
		c := text[i] | 0x20 // a letter's lower case
		if (c < 'a' || c > 'z') && (text[i] < '0' || text[i] > ':') && text[i] != '_' && text[i] != '.' && text[i] != '-' {
			return false
		}
	}
	return text != "" && len(text) <= 100
}

const wantName = "want 1 to 100 letters, digits, or _ . : -"

// validMeter returns an error if the limit or the key is invalid. The error shows the beginning of
// the key.
func validMeter(limit, key string) error {
	if !isName(limit) {
		return fieldError("limit", limit, wantName)
	}
	const maxKey = 200 // the key becomes part of the name of a Redis key
	if len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' }) {
		return &FieldError{"key", fmt.Sprintf("%.40q", key), fmt.Sprintf("want at most %d bytes and no control characters", maxKey)}
	}
	return nil
}

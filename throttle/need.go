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

// Need is what a caller wants of one limit: Cost permits for one Key. The empty
// key is a key like any other, for limits that count nothing apart. The zero Cost
// means 1 where a job or a call is meant; AllowN with 0 looks without taking.
type Need struct {
	Limit string
	Key   string
	Cost  int
}

// withCosts gives every need that names no cost a cost of 1, in a copy: the slice
// is the caller's.
func withCosts(needs []Need) []Need {
	needs = slices.Clone(needs)
	for i := range needs {
		if needs[i].Cost == 0 {
			needs[i].Cost = 1
		}
	}
	return needs
}

// Normalize has needs that name no cost cost one permit, sorts them, and adds up those of
// the same meter, in a copy. It refuses what cannot be a need, and none at all.
func Normalize(needs ...Need) ([]Need, error) { return normalize(withCosts(needs)) }

// normalize merges needs, so that equal sets are equal texts: the name of a lane is
// made of them. It refuses what cannot be a need.
func normalize(needs []Need) ([]Need, error) {
	if len(needs) == 0 {
		return nil, errors.New("needs: want at least one limit")
	}
	if len(needs) > script.MostMeters {
		return nil, fieldError("needs", len(needs), "want at most %d of one call", script.MostMeters)
	}
	for _, n := range needs {
		if n.Cost < 0 || n.Cost > math.MaxInt32 {
			return nil, fieldError("cost", n.Cost, "want 0 to %d of limit %s", math.MaxInt32, n.Limit)
		}
		if err := validMeter(n.Limit, n.Key); err != nil {
			return nil, err
		}
	}
	return merge(needs), nil
}

// merge sorts needs and adds up those of the same meter: else each of them would be
// held against the same permits, and together they could take more than there are.
func merge(needs []Need) []Need {
	if len(needs) < 2 {
		return needs
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
	return merged
}

// appendMeters appends the meters of needs as the scripts take them: limit and key.
func appendMeters(args []any, needs []Need) []any {
	for _, n := range needs {
		args = append(args, n.Limit, n.Key)
	}
	return args
}

// isName reports whether text is 1 to 100 letters, digits, or _ . : -. It is asked
// for every need of every call, so it is no regular expression. What it leaves out
// separates: | a limit from its key, line breaks meters, commas apps.
func isName(text string) bool {
	for i := range len(text) {
		c := text[i] | 0x20 // a letter's lower case
		if (c < 'a' || c > 'z') && (text[i] < '0' || text[i] > ':') && text[i] != '_' && text[i] != '.' && text[i] != '-' {
			return false
		}
	}
	return text != "" && len(text) <= 100
}

// wantName says what isName takes.
const wantName = "want 1 to 100 letters, digits, or _ . : -"

// validMeter refuses what cannot name a meter.
func validMeter(limit, key string) error {
	if !isName(limit) {
		return fieldError("limit", limit, wantName)
	}
	return validKey(key)
}

// maxKey bounds a meter's key, which becomes part of the name of a Redis key.
const maxKey = 200

// validKey refuses a key that is too long or has control characters. It shows only the
// beginning.
func validKey(key string) error {
	if len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' }) {
		return &FieldError{"key", fmt.Sprintf("%.40q", key), fmt.Sprintf("want at most %d bytes and no control characters", maxKey)}
	}
	return nil
}

package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// names are the words of a type whose values count from 0: what config files and
// logs have in place of its numbers. Case and spaces count.
type names []string

// text is the word of a value, or its number where it has none.
func (n names) text(value int) string {
	if value < 0 || value >= len(n) {
		return strconv.Itoa(value)
	}
	return n[value]
}

// marshal is text for encoding.TextMarshaler: a value without a word is an error,
// so that nothing is written that cannot be read back.
func (n names) marshal(value int) ([]byte, error) {
	if value < 0 || value >= len(n) {
		return nil, fmt.Errorf("%d: want 0 to %d", value, len(n)-1)
	}
	return []byte(n[value]), nil
}

// unmarshal finds the value of a word. Its error lists the words, and leaves value
// as it was.
func (n names) unmarshal(text []byte, value *int) error {
	i := slices.Index(n, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want one of %s", text, strings.Join(n, ", "))
	}
	*value = i
	return nil
}

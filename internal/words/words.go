// Package words writes numbers as people read them: how many there are of what, and the values
// of types that count from 0 as words, as config files and logs have them.
package words

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Words are those of a type's values, in their order. Case and spaces count.
type Words []string

// Has reports whether a value has a word.
func (w Words) Has(value int) bool { return value >= 0 && value < len(w) }

// Text is the word of a value, or its number where it has none.
func (w Words) Text(value int) string {
	if !w.Has(value) {
		return strconv.Itoa(value)
	}
	return w[value]
}

// Marshal is Text for encoding.TextMarshaler: a value without a word is an error,
// so that nothing is written that cannot be read back.
func (w Words) Marshal(value int) ([]byte, error) {
	if !w.Has(value) {
		return nil, fmt.Errorf("%d: want 0 to %d", value, len(w)-1)
	}
	return []byte(w[value]), nil
}

// Unmarshal finds the value of a word. Its error lists the words, and leaves value
// as it was.
func (w Words) Unmarshal(text []byte, value *int) error {
	i := slices.Index(w, string(text))
	if i < 0 {
		return fmt.Errorf("%q: want one of %s", text, w)
	}
	*value = i
	return nil
}

// String lists the words.
func (w Words) String() string { return strings.Join(w, ", ") }

// Count is how many there are of a noun: "1 job", "2 jobs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Package words has types whose values count from 0 written as words, as config files and
// logs have them in place of numbers.
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

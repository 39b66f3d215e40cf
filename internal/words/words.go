// Package words writes things as people read them: numbers, keys, texts that come from elsewhere,
// and the values of types that count from 0 as words, as config files and logs have them.
package words

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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

// Number is 12,431.
func Number[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Count is how many there are of a noun: "1 job", "12,431 jobs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// Key is a key for people: the empty one is that of limits without keys.
func Key(key string) string { return cmp.Or(key, "(no key)") }

// Meter is limit|key for people. The name of a limit has no | in it, a key may.
func Meter(meter string) string {
	limit, key, _ := strings.Cut(meter, "|")
	if key == "" {
		return limit
	}
	return limit + " of " + key
}

// Visible makes a foreign text harmless to look at: what is no UTF-8, what controls
// a terminal, and what turns the direction of text around becomes a mark that can be
// seen. Line breaks and tabs stay. Beyond most bytes the text is cut, and says by how much.
// Work and output are bounded by most, however long the text is.
func Visible(text string, most int) string { return Cut(text, most, 0) }

// Cut is Visible for the beginning of a text, with so many more bytes behind it.
func Cut(text string, most, more int) string {
	cut := ""
	if len(text) > most {
		end := most // not through a character
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		cut = fmt.Sprintf("… (%s bytes more)", Number(len(text)-end+more))
		text = text[:end]
	}
	return strings.Map(mark, strings.ToValidUTF8(text, "\uFFFD")) + cut
}

// Line is Visible on one line: line breaks and tabs become marks, too.
func Line(text string, most int) string {
	return strings.NewReplacer("\n", "␊", "\t", "␉").Replace(Visible(text, most))
}

// mark is a character as it is shown: itself, or what stands for one that cannot be
// seen or does something. Two sorts of line breaks of Unicode go, which some programs obey.
func mark(c rune) rune {
	switch {
	case c == '\n' || c == '\t':
		return c
	case c < ' ':
		return 0x2400 + c // the picture of the control character
	case c == 0x7f:
		return 0x2421
	case unicode.In(c, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp):
		return utf8.RuneError
	}
	return c
}

// Package display formats numbers, keys and untrusted texts for people. Payloads and errors are
// untrusted texts.
package display

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Number returns a number with commas, such as 12,431.
func Number[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Count returns a number of things, such as "1 job" or "12,431 jobs".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}

// CountVerb returns a number of things and what they do, such as "1 job waits" or "2 jobs wait".
func CountVerb(n int, noun, one, several string) string {
	if n == 1 {
		return Count(n, noun) + " " + one
	}
	return Count(n, noun) + " " + several
}

// Key returns a key of a limit. The empty key is shown as "(no key)".
func Key(key string) string { return cmp.Or(key, "(no key)") }

// Meter returns "limit of key" for the text limit|key, and "limit" if the key is empty. A key may
// contain |, but the name of a limit does not.
func Meter(meter string) string {
	limit, key, _ := strings.Cut(meter, "|")
	if key == "" {
		return limit
	}
	return limit + " of " + key
}

// Visible replaces invalid UTF-8, and characters that control a terminal or the direction of text,
// by visible ones. Line breaks and tabs stay. Visible cuts a text of more than limit bytes, and
// adds the number of bytes left out.
func Visible(text string, limit int) string { return VisiblePrefix(text, limit, 0) }

// VisiblePrefix is Visible for the beginning of a longer text. The caller has already left out the
// last `omitted` bytes. If text must be cut, the number of bytes left out includes `omitted`.
func VisiblePrefix(text string, limit, omitted int) string {
	cut := ""
	if len(text) > limit {
		end := limit
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		cut = fmt.Sprintf("… (%s bytes more)", Number(len(text)-end+omitted))
		text = text[:end]
	}
	return strings.Map(visibleRune, strings.ToValidUTF8(text, "\uFFFD")) + cut
}

// Line is Visible for one line of output: it replaces line breaks and tabs, too.
func Line(text string, limit int) string {
	return strings.NewReplacer("\n", "␊", "\t", "␉").Replace(Visible(text, limit))
}

func visibleRune(c rune) rune {
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

package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The functions below are what Missed and Overlap have in common. A value's
// text stands at its place in texts, so that the zero value has the first.

// isChoice reports whether a value has a text.
func isChoice(texts []string, value int) bool { return value >= 0 && value < len(texts) }

// choiceText gives a value's text. One that is no choice shows as its number.
func choiceText(texts []string, value int) string {
	if !isChoice(texts, value) {
		return strconv.Itoa(value)
	}
	return texts[value]
}

// marshalChoice is choiceText for encoding.TextMarshaler: what has no text is an
// error, so that nothing is written that cannot be read back.
func marshalChoice(texts []string, value int) ([]byte, error) {
	if !isChoice(texts, value) {
		return nil, fmt.Errorf("want %s, not %d", wantChoice(texts), value)
	}
	return []byte(texts[value]), nil
}

// parseChoice finds the value of a text. Its error lists them all.
func parseChoice(texts []string, text string) (int, error) {
	value := slices.Index(texts, text)
	if value < 0 {
		return 0, fmt.Errorf("want %s, not %q", wantChoice(texts), text)
	}
	return value, nil
}

// wantChoice lists texts in words: skip, once or all.
func wantChoice(texts []string) string {
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}

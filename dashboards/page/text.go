package page

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/redact"
)

// The largest lengths of untrusted texts in bytes, in a line of a table and in a block.
const (
	shortText = 120
	longText  = 64 << 10
)

// short returns an untrusted text on one line.
func short(text string) string { return oneLine(display.Visible(text, shortText)) }

// oneLine replaces each run of white space by one space.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// perSecond formats a rate: with two decimals below 1, with one below 10, or else without decimals.
// A rate below 0.005 is "0.00", and the rate 0 is "0".
func perSecond(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 0.995:
		return strconv.FormatFloat(rate, 'f', 2, 64)
	case rate < 9.95:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	return display.Number(int64(math.Round(rate)))
}

// span formats a duration. Less than a millisecond, or a negative duration, is "now".
func span(d time.Duration) string {
	if d < time.Millisecond {
		return "now"
	}
	return duration.Text(d)
}

// since formats the time since t. Less than a second is "now", and so is a t in the future, which
// occurs because clocks differ.
func since(t, now time.Time) string {
	if d := now.Sub(t); d >= time.Second {
		return span(d.Truncate(time.Second)) + " ago"
	}
	return "now"
}

// clock formats a time in the zone of now: 14:52:07, or with its date and without seconds on another
// day. The zero time is a dash.
func clock(t, now time.Time) string {
	t = t.In(now.Location()).Round(time.Second)
	switch y, m, d := now.Date(); {
	case t.IsZero():
		return "–"
	case t.Year() == y && t.Month() == m && t.Day() == d:
		return t.Format("15:04:05")
	case t.Year() == y:
		return t.Format("Jan 2 15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// keyName formats a key, which is untrusted.
func keyName(key string) string { return short(display.Key(key)) }

// meterName formats limit|key.
func meterName(meter string) string { return short(display.Meter(meter)) }

// redactor hides secrets in untrusted texts. Templates call its methods.
type redactor struct{ redact.Redactor }

// Block returns a payload, a result or an error. It indents JSON that is not too long or too deep.
func (r redactor) Block(data []byte) string {
	value, err := redact.Decode(data, 4*longText)
	if _, isText := value.(string); err == nil && !isText {
		return display.Visible(indented(r.Value(value)), longText)
	}
	return r.Clean(string(data), longText)
}

// Clean returns a text, cut at limit bytes. Before it cuts, it hides the secrets in the first 2*limit
// bytes, so that it finds a secret that the cut would divide.
func (r redactor) Clean(text string, limit int) string {
	more := max(0, len(text)-2*limit)
	return display.Cut(r.Text(text[:len(text)-more]), limit, more)
}

// Header returns a header's value.
func (r redactor) Header(name, value string) string {
	if r.Hides(name) {
		return redact.Hidden
	}
	return oneLine(r.Clean(value, shortText))
}

// indented formats a JSON value with indentation. If one line of it is longer than longText, or if
// it cannot be indented, it is on one line.
func indented(value any) string {
	var line, lines bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // the value was decoded, so it can be encoded
	text := bytes.TrimRight(line.Bytes(), "\n")
	if len(text) > longText || json.Indent(&lines, text, "", "  ") != nil {
		return string(text)
	}
	return lines.String()
}

package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/redact"
)

// The lengths that texts are shown in, in bytes: a line of a table, and a whole block.
const (
	shortText = 120
	longText  = 64 << 10
)

// short is a foreign text on one line, with each run of blanks as one. Two that differ
// only beyond its length look the same; links have them whole.
func short(text string) string {
	return oneLine(display.Visible(text, shortText))
}

// oneLine is a text with each run of blanks as one.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// perSecond is a rate with as many digits as matter: two of them below ten, and whole
// permits above. A rate that rounds to zero is 0.00 and not 0, which means none.
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

// span is a duration until something, for people.
func span(d time.Duration) string {
	if d < time.Millisecond {
		return "now"
	}
	return duration.Text(d)
}

// latency is a short duration with one more digit, as Redis answers within a few ms.
func latency(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	}
	return span(d)
}

// since is how long ago a moment was, for people, in whole seconds. One that lies ahead
// is now, as clocks differ.
func since(t, now time.Time) string {
	if d := now.Sub(t); d >= time.Second {
		return span(d.Truncate(time.Second)) + " ago"
	}
	return "now"
}

// clock is a moment near now, in now's zone: 14:52:07, or with its day where that is
// another, and without seconds then. The zero time is a dash.
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

// keyName is a key for people, which came with jobs, so a foreign text.
func keyName(key string) string { return short(display.Key(key)) }

// meterName is limit|key for people.
func meterName(meter string) string { return short(display.Meter(meter)) }

// sentence is an error's text for people: of the page's own errors, which begin with a
// letter, and not for foreign ones.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// redactor hides secrets in what the page shows.
type redactor struct{ redact.Redactor }

func newRedactor(names []string) (redactor, error) {
	r, err := redact.New(names)
	if err != nil {
		err = fmt.Errorf("page: %w", err)
	}
	return redactor{r}, err
}

// block is a payload, a result or an error as it is shown. JSON is indented if it fits into what
// is shown before that. What is too long or nested too deep to be read as JSON, lines of JSON and a
// JSON string are shown as text.
func (r redactor) block(data []byte) string {
	value, err := redact.Decode(data, 4*longText)
	if _, isText := value.(string); err == nil && !isText {
		return display.Visible(indented(r.Value(value)), longText)
	}
	return r.shown(string(data), longText)
}

// shown is a text without secrets, cut at most bytes. Secrets are looked for in twice as much as is
// shown, so that one at the cut is found, and in no more than that.
func (r redactor) shown(text string, most int) string {
	more := max(0, len(text)-2*most)
	return display.Cut(r.Text(text[:len(text)-more]), most, more)
}

// indented is a JSON value as text: on one line if that is longer than what is shown.
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

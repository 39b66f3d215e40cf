package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"html/template"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/internal/waitdb"
)

//go:embed assets/* templates/*.html
var files embed.FS

// serveAsset serves an asset. Browsers ask each time whether it has changed.
func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	data, err := files.ReadFile("assets/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", fmt.Sprintf("\"%x\"", sha256.Sum256(data)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}

// templates has the pages by name. Each page has a copy of the layout, because every page defines
// the template "content".
var templates = sync.OnceValue(func() map[string]*template.Template {
	layout := template.Must(template.New("layout").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	found := map[string]*template.Template{}
	for _, name := range []string{"limits", "waiting", "job", "jobs", "changes", "do", "message"} {
		found[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return found
})

// functions are for templates. Templates escape the results, except that of moment, which is HTML.
// Templates have no style attributes, because the Content-Security-Policy forbids them; bars are
// SVGs.
var functions = template.FuncMap{
	"num": func(n any) string { return display.Number(reflect.ValueOf(n).Int()) }, "perSecond": perSecond, "span": span,
	"clock": moment, "since": since, "short": short, "plural": display.Count, "key": keyName, "meter": meterName, "change": changeText, "by": by,
	"when": when, "eta": eta, "estimate": estimate,
	"percent": func(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) },
	"act":     act, "to": to,
	"isFull": func(share float64) bool { return share >= 0.95 },
	"zone":   func(t time.Time) string { return t.Format("MST") },
	"iso":    func(t time.Time) string { return t.Format(time.RFC3339) },
}

// The largest lengths of untrusted texts in bytes, in a line of a table and in a block.
const (
	shortText = 120
	longText  = 64 << 10
)

// short returns an untrusted text on one line.
func short(text string) string { return oneLine(display.Visible(text, shortText)) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func keyName(key string) string { return short(display.Key(key)) }

func meterName(meter string) string { return short(display.Meter(meter)) }

// perSecond formats a rate: with two decimals below 1, with one below 10, else without. 0 is "0".
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

// since formats the time since t. It returns "now" for less than a second, and for a t in the
// future.
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
	switch {
	case t.IsZero():
		return "–"
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format(time.TimeOnly)
	case t.Year() == now.Year():
		return t.Format("Jan 2 15:04")
	}
	return t.Format("2006-01-02 15:04")
}

// moment returns clock in an element that the script converts to the viewer's zone.
func moment(t, now time.Time) template.HTML {
	if t.IsZero() {
		return template.HTML(clock(t, now))
	}
	t = t.In(now.Location()).Round(time.Second)
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + clock(t, now) + `</time>`)
}

// estimate returns the estimate of a waiting job, counted from now.
func estimate(p waitdb.Position, now time.Time) forecast.Estimate {
	e := forecast.OfPosition(p)
	e.StartsIn = max(0, p.StartsAt.Sub(now))
	return e
}

// when ends a sentence such as "it would run in 5 min, at 14:52:07".
func when(e forecast.Estimate, now time.Time) template.HTML {
	at := func(d time.Duration) string { return `<b class="num">` + string(moment(now.Add(d), now)) + `</b>` }
	return template.HTML(e.When(func(d time.Duration) string { return span(d) + ", at " + at(d) }, at))
}

// eta is when in a cell of a table: 14:52:07, or ~14:52:07 for an estimate.
func eta(e forecast.Estimate, now time.Time) template.HTML {
	at := moment(now.Add(e.StartsIn), now)
	switch {
	case e.Known && e.Estimated:
		return "~" + at
	case e.Known:
		return at
	case e.AtLeast && e.StartsIn > 0:
		return "from " + at + " on"
	}
	return `<span class="dim">unknown</span>`
}

// redactor hides secrets in untrusted texts. Templates call its methods.
type redactor struct{ redact.Redactor }

// Block returns a payload, a result or an error. It indents JSON that is not too long or too deep.
func (r redactor) Block(data []byte) string {
	value, err := redact.Decode(data, longText)
	if _, isText := value.(string); err == nil && !isText {
		return display.Visible(redact.Encode(r.Value(value), "  "), longText)
	}
	return r.Clean(string(data), longText)
}

// Clean returns a text, cut at limit bytes. It hides secrets in the first 2*limit bytes before it
// cuts, because a cut can divide a secret.
func (r redactor) Clean(text string, limit int) string {
	more := max(0, len(text)-2*limit)
	return display.VisiblePrefix(r.Text(text[:len(text)-more]), limit, more)
}

// Header returns a header's value.
func (r redactor) Header(name, value string) string {
	if r.Hides(name) {
		return redact.Hidden
	}
	return oneLine(r.Clean(value, shortText))
}

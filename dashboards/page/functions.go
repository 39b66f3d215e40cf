package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"
)

// functions are what templates call. What they return is text, which html/template
// escapes where it stands; only moment returns HTML, of digits and letters of its own. Nor do templates write style attributes,
// which the policy refuses: what has a size, such as a bar, is an SVG.
var functions = template.FuncMap{
	"asset": assetPath, "num": anyNumber, "perSecond": perSecond, "span": span,
	"clock": moment, "since": since, "short": short, "plural": plural, "key": keyName, "meter": meterName,
	"tick": tick, "percent": func(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) },
	"spark": spark, "jobsIn": jobsIn, "act": act, "to": to,
	"latency": latency, "isFull": func(share float64) bool { return share >= 0.95 },
	"zone": func(t time.Time) string { return t.Format("MST") },
	"iso":  func(t time.Time) string { return t.Format(time.RFC3339) },
}

// moment is clock as an element that the script turns into the viewer's zone.
func moment(t, now time.Time) template.HTML {
	if t.IsZero() {
		return template.HTML(clock(t, now))
	}
	t = t.In(now.Location()).Round(time.Second)
	return template.HTML(`<time datetime="` + t.Format(time.RFC3339) + `">` + clock(t, now) + `</time>`)
}

// anyNumber is number for the sorts of numbers that views have.
func anyNumber(n any) string {
	if n, ok := n.(int64); ok {
		return number(n)
	}
	return number(n.(int))
}

// to is the address of a page: pairs of a parameter and its value. Empty values are
// left out, as they mean the same as none. It begins with ./, so what is in a name
// cannot make it the address of another site.
func to(name string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return "./" + name
	}
	return "./" + name + "?" + q.Encode()
}

// act is the address of an action on what the pairs name, from a place to which it
// comes back. Empty values stay: the empty key is that of a limit without keys, while
// no key at all has the form ask for one.
func act(name, back string, pairs ...string) string {
	q := url.Values{"action": {name}, "back": {back}}
	for i := 0; i+1 < len(pairs); i += 2 {
		q.Set(pairs[i], pairs[i+1])
	}
	return "./do?" + q.Encode()
}

// The size of a small curve, in its own units, which the template's viewBox has too:
// the style sheet makes it as large as the column.
const sparkWidth, sparkHeight = 150.0, 28.0

// sparkline is the last 15 minutes of a limit in the least of space.
type sparkline struct {
	// Points are the curve in the form of SVG: x,y for each 10 seconds, y from the top.
	Points string
	// Allowed is the y of the line of what is allowed; empty for none.
	Allowed string
	// Text says the same for those who cannot see the curve.
	Text string
}

// spark draws a limit's row. The height is that of the highest part, or of what is
// allowed where that is near enough to be seen beside it: up to twenty times as high,
// as a curve below that is a flat line. Of a limit with keys nothing says what all of
// them together are allowed.
func spark(r limitRow) sparkline {
	row := r.Row[:max(0, len(r.Row)-1)] // the last part is not over yet
	most, sum := 0.0, 0
	for _, t := range row {
		most, sum = max(most, float64(t.Permits)/part.Seconds()), sum+t.Permits
	}
	// 0 is no line.
	allowed := 0.0
	if !r.Keyed && (most > 0 && r.Any.PerSecond < 20*most) {
		allowed = r.Any.PerSecond
	}
	// Nothing touches the upper edge, and a curve of zeros lies on the lower one.
	top := max(most, allowed) * 1.08
	height := func(rate float64) float64 {
		if top == 0 {
			return sparkHeight - 1
		}
		return sparkHeight - 1 - (sparkHeight-2)*rate/top
	}
	var points strings.Builder
	// A tenth of a unit is less than a pixel: more digits would only be sent.
	for i, t := range row {
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*sparkWidth/float64(len(row)-1), height(float64(t.Permits)/part.Seconds()))
	}
	s := sparkline{Points: strings.TrimSpace(points.String()), Text: plural(sum, "permit") + " in 15 minutes, at most " + perSecond(most) + " a second"}
	if allowed > 0 {
		s.Allowed = fmt.Sprintf("%.1f", height(allowed))
	}
	return s
}

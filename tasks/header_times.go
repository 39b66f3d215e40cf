package tasks

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// headerTimes reads the times in a response's header. docs/limits.md lists all forms.
type headerTimes struct {
	header http.Header
	now    time.Time
}

// longestWait is the longest wait that is read from a header. It fits into a Duration and a limiter.
const longestWait = 365 * 24 * time.Hour

// retryAfterField matches Retry-After, X-RateLimit-Retry-After and Retry-After-Ms.
var retryAfterField = regexp.MustCompile(`(?i)^(?:x-)?(?:rate-?limit-)?retry-after(-ms)?$`)

// retryAfter returns the longest wait of the Retry-After fields, or 0, rounded up to the field's unit.
func (t headerTimes) retryAfter() (longest time.Duration) {
	for name, values := range t.header {
		m := retryAfterField.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		unit := time.Second
		if m[1] != "" {
			unit = time.Millisecond
		}
		wait, _ := t.wait(values, unit)
		longest = max(longest, roundUp(wait, unit))
	}
	return longest
}

// wait returns the time until the latest time in the values, in whole milliseconds, or 0 if it is
// in the past. ok is false if no value is a time. unit is the unit of plain numbers.
func (t headerTimes) wait(values []string, unit time.Duration) (longest time.Duration, ok bool) {
	for _, text := range listed(values) {
		if seconds, valid := t.seconds(text, unit); valid {
			seconds = min(max(0, seconds), longestWait.Seconds())
			// A float64 cannot hold most fractions exactly.
			micros := time.Duration(math.Round(seconds * 1e6))
			longest, ok = max(longest, roundUp(micros*time.Microsecond, time.Millisecond)), true
		}
	}
	return longest, ok
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }

var weekday = regexp.MustCompile(`(?i)^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*$`)

// listed splits values at their commas, except the comma of a date.
func listed(values []string) (texts []string) {
	for _, value := range values {
		day := ""
		for part := range strings.SplitSeq(value, ",") {
			if text := day + strings.TrimSpace(part); weekday.MatchString(text) {
				day = text + ", "
			} else {
				texts, day = append(texts, text), ""
			}
		}
	}
	return texts
}

// plainNumber matches the numbers that servers write, without an exponent or a sign.
var plainNumber = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)

// dateForms holds the forms of dates that servers write, in addition to those of http.ParseTime. A
// date without a zone is in UTC.
var dateForms = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 UTC", "Mon, 2 Jan 2006 15:04:05 -0700",
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
}

// seconds returns the seconds until a time, or a negative number if the time is in the past. It
// reads a number of units, seconds or milliseconds since 1970, a duration such as "6m0s", and a
// date. It compares absolute times with the Date header, not with the local clock.
func (t headerTimes) seconds(text string, unit time.Duration) (seconds float64, ok bool) {
	const epoch = 1e9 // a larger number is a Unix time: as a wait it would be 32 years
	if plainNumber.MatchString(text) {
		n, _ := strconv.ParseFloat(text, 64) // infinite with too many digits, which is a very long wait
		switch {
		case n >= 1000*epoch && n < 1e15: // up to the year 33658
			return n/1000 - t.date(), true
		case n >= epoch && n < 1000*epoch && unit == time.Second:
			return n - t.date(), true
		}
		return n * unit.Seconds(), true
	}
	if wait, err := time.ParseDuration(text); err == nil && wait >= 0 {
		return wait.Seconds(), true
	}
	at, err := http.ParseTime(text)
	for i := 0; err != nil && i < len(dateForms); i++ {
		at, err = time.Parse(dateForms[i], text)
	}
	return float64(at.UnixMicro())/1e6 - t.date(), err == nil
}

// date returns the header's Date, or else now, in seconds since 1970.
func (t headerTimes) date() float64 {
	at := t.now
	if date, err := http.ParseTime(t.header.Get("Date")); err == nil {
		at = date
	}
	return float64(at.UnixMicro()) / 1e6
}

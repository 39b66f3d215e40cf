package tasks

import (
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// headerTimes reads the times in one answer's header. Each time becomes a distance from now
// by this process's clock. docs/limits.md has the table of all forms.
type headerTimes struct {
	header http.Header
	now    time.Time
}

// longestWait bounds every time that a header says, so that a nonsensical one does not
// overflow a Duration, and now plus the wait stays within the times that a limiter can hold.
const longestWait = 365 * 24 * time.Hour

// retryAfterField matches the fields that say how long to stay away: Retry-After,
// X-RateLimit-Retry-After and Retry-After-Ms.
var retryAfterField = regexp.MustCompile(`(?i)^(?:x-)?(?:rate-?limit-)?retry-after(-ms)?$`)

// retryAfter is the longest time that the header's Retry-After fields say, or 0 if none of
// them says a time in the future. A wait in seconds or a date is rounded up to a whole
// second, because that is the unit of Retry-After: a call must not come too early.
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

// wait is how far off the latest time is in the values of a field, in whole milliseconds,
// and 0 if that time is over. ok is false if no value says a time. A number counts in unit.
func (t headerTimes) wait(values []string, unit time.Duration) (longest time.Duration, ok bool) {
	for _, text := range listed(values) {
		if seconds, valid := t.seconds(text, unit); valid {
			seconds = min(max(0, seconds), longestWait.Seconds())
			// By way of microseconds, because a float64 cannot hold most fractions exactly.
			micros := time.Duration(math.Round(seconds * 1e6))
			longest, ok = max(longest, roundUp(micros*time.Microsecond, time.Millisecond)), true
		}
	}
	return longest, ok
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1).Truncate(unit) }

var weekday = regexp.MustCompile(`(?i)^(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*$`)

// listed splits the values of a field at their commas. The comma of a date does not count.
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

// plainNumber matches the numbers that servers write. An exponent, a sign or a hexadecimal
// number is a mistake.
var plainNumber = regexp.MustCompile(`^[0-9]+(?:\.[0-9]+)?$`)

// dateForms are the dates that servers write besides those of HTTP, which http.ParseTime
// reads. A date without a zone is in UTC, because that is the zone of most servers.
var dateForms = []string{
	"Mon, 2 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 UTC", "Mon, 2 Jan 2006 15:04:05 -0700",
	time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
}

// seconds is how far off one time is: below 0 if it is over. It reads a number of units, or
// of seconds or milliseconds since 1970, a duration such as "6m0s", and a date. A point in time is
// compared with the answer's own Date if it has one, so that the two clocks need not agree.
func (t headerTimes) seconds(text string, unit time.Duration) (seconds float64, ok bool) {
	const epoch = 1e9 // as a wait in seconds it would be 32 years, so it is a Unix time
	if plainNumber.MatchString(text) {
		n, _ := strconv.ParseFloat(text, 64) // with too many digits it is infinite, and so a very long wait
		switch {
		case n >= 1000*epoch && n < 1e15: // later than the year 33658 is no Unix time
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

// date is when the answer was made by its server's clock, its Date, or else by this
// process's clock, in seconds since 1970.
func (t headerTimes) date() float64 {
	at := t.now
	if date, err := http.ParseTime(t.header.Get("Date")); err == nil {
		at = date
	}
	return float64(at.UnixMicro()) / 1e6
}

package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/duration"
)

// Periods longer than an hour. In a fixed window an hour, Day, Week and Month follow the calendar
// of the limit's zone: a day can last 23 or 25 hours, and a week starts on Monday. For every other
// kind they are plain durations, and Month is the length of the mean Gregorian month.
const (
	Day   = 24 * time.Hour
	Week  = 7 * Day
	Month = 2629746 * time.Second
)

// maxPermits bounds N, capacities and settled costs. The scripts split the time of k permits,
// k·Per/N, into whole microseconds and N-ths of a microsecond. For that they compute k·(Per mod N).
// This product must stay far below 2^53, up to which Lua's numbers are exact.
const maxPermits = 10_000_000

// Rate is N permits per Per: 1 to 10,000,000 permits in a period of whole microseconds, at most a
// hundred years. 60 a minute and 1 a second differ for the kinds that count in windows, because Per
// is the length of the window. For a Funnel and a TokenBucket they are equal. The zero Rate means
// "no rate", which only a concurrency limit may have.
type Rate struct {
	N   int
	Per time.Duration
}

// PerSecond returns n permits a second.
func PerSecond(n int) Rate { return Rate{n, time.Second} }

// PerMinute returns n permits a minute.
func PerMinute(n int) Rate { return Rate{n, time.Minute} }

// PerHour returns n permits an hour.
func PerHour(n int) Rate { return Rate{n, time.Hour} }

// PerDay returns n permits a day.
func PerDay(n int) Rate { return Rate{n, Day} }

// Every returns one permit per d.
func Every(d time.Duration) Rate { return Rate{1, d} }

// units are the units of rates, from the shortest to the longest. pace uses the first unit in which
// a rate is at least 1. String uses the longest unit that divides the period.
var units = []struct {
	per   time.Duration
	names []string // String writes the first name
}{
	{time.Second, []string{"s", "sec", "second", "seconds"}},
	{time.Minute, []string{"m", "min", "minute", "minutes"}},
	{time.Hour, []string{"h", "hour", "hours"}},
	{Day, []string{"day", "d", "days"}},
	{Week, []string{"week", "w", "weeks"}},
	{Month, []string{"month", "months"}},
}

// ParseRate reads a rate such as "2000/day", "10/s", "1/2s", "5/minute" or "1/1m30s": a count, a
// slash and a period. The period is a unit (s, m, h, day, week, month, or their long names, in any
// case), a number of units, or a Go duration. A bare m is a minute. The count may have underscores:
// "1_000_000/day". The error is a [*FieldError].
func ParseRate(text string) (Rate, error) {
	count, period, found := strings.Cut(strings.TrimSpace(text), "/")
	if !found {
		return Rate{}, fieldError("rate", text, "want COUNT/PERIOD, such as 2000/day, 10/s or 1/2s")
	}
	n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(count), "_", ""))
	if err != nil {
		return Rate{}, fieldError("rate", text, "%q is not a whole number of permits", count)
	}
	per, err := parsePeriod(strings.TrimSpace(period))
	if err != nil {
		return Rate{}, fieldError("rate", text, "%v", err)
	}
	r := Rate{n, per}
	return r, r.validate()
}

// parsePeriod reads what follows the slash: a unit, a number of units, or what duration.Parse
// reads.
func parsePeriod(text string) (time.Duration, error) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	times := 1
	if digits > 0 {
		var err error
		if times, err = strconv.Atoi(text[:digits]); err != nil {
			return 0, fmt.Errorf("period %q is too long", text)
		}
	}
	unit := strings.ToLower(strings.TrimSpace(text[digits:]))
	for _, u := range units {
		if !slices.Contains(u.names, unit) {
			continue
		}
		if times > int(100*365*Day/u.per) {
			return 0, fmt.Errorf("period %q is longer than a hundred years", text)
		}
		return time.Duration(times) * u.per, nil
	}
	d, err := duration.Parse(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a period: want a unit (s, m, h, day, week, month), a number of them (2s, 15m), or a duration (1m30s)", text)
	}
	return d, nil
}

// validate returns a [*FieldError] for an invalid rate, or nil.
func (r Rate) validate() error {
	value := cmp.Or(r.String(), "none")
	switch {
	case r.N < 1 || r.N > maxPermits:
		return &FieldError{"rate", value, fmt.Sprintf("want 1 to %d permits per period", maxPermits)}
	case r.Per < time.Microsecond || r.Per > 100*365*Day:
		return &FieldError{"rate", value, "want a period from 1µs to a hundred years"}
	case r.Per%time.Microsecond != 0:
		return &FieldError{"rate", value, "want a period of whole microseconds"}
	}
	return nil
}

// String returns the rate as ParseRate reads it, in the longest unit that divides the period. For
// example, one permit in 90 minutes is "1/90m". The zero Rate is the empty text.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	for _, u := range slices.Backward(units) {
		if r.Per == u.per {
			return fmt.Sprintf("%d/%s", r.N, u.names[0])
		}
		if r.Per > u.per && r.Per%u.per == 0 {
			return fmt.Sprintf("%d/%d%s", r.N, r.Per/u.per, u.names[0])
		}
	}
	return fmt.Sprintf("%d/%s", r.N, r.Per)
}

// UnmarshalText reads what ParseRate reads, so the empty text is an error.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// perSecond returns the number of permits per second, to compare rates.
func perSecond(r Rate) float64 { return float64(r.N) / r.Per.Seconds() }

// pace formats a share of a rate, such as "4.5/s", in the shortest unit in which there is at least
// one permit.
func pace(r Rate, share float64) string {
	times := share * float64(r.N)
	for _, u := range units {
		if n := times * float64(u.per) / float64(r.Per); n >= 1 || u.per == Month {
			return fmt.Sprintf("%.3g/%s", n, u.names[0])
		}
	}
	return ""
}

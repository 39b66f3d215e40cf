// Package duration reads and writes durations for people, with days and weeks.
package duration

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

var daysOrWeeks = regexp.MustCompile(`([0-9.]+)([dw])`)

// Parse reads what time.ParseDuration reads, and also days and weeks of 24 and 168 hours: 7d, 2w,
// 1d12h.
func Parse(text string) (time.Duration, error) {
	inHours := daysOrWeeks.ReplaceAllStringFunc(text, func(part string) string {
		number, unit := part[:len(part)-1], part[len(part)-1]
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return part // time.ParseDuration rejects this part
		}
		if unit == 'w' {
			n *= 7
		}
		return strconv.FormatFloat(24*n, 'f', -1, 64) + "h"
	})
	d, err := time.ParseDuration(inHours)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration", text)
	}
	return d, nil
}

// Text formats a duration for people in at most two units: 28 d 17 h. Where rounding reaches a
// larger unit, Text uses the larger unit: 1 s and not 1000 ms.
func Text(d time.Duration) string {
	// pair formats d in two units, or in one if the number of small units is 0.
	pair := func(big, small time.Duration, bigName, smallName string) string {
		d = d.Round(small)
		if rest := d % big / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", d/big, bigName, rest, smallName)
		}
		return fmt.Sprintf("%d %s", d/big, bigName)
	}
	switch {
	case d < 0:
		if d == math.MinInt64 {
			d++
		}
		return "-" + Text(-d)
	case d < time.Microsecond:
		return "0 s"
	case d < 999500*time.Nanosecond:
		return fmt.Sprintf("%d µs", d.Round(time.Microsecond).Microseconds())
	case d < 995*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
	case d < 9950*time.Millisecond:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < 59500*time.Millisecond:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour-time.Second:
		return pair(time.Minute, time.Second, "min", "s")
	case d < day-time.Minute:
		return pair(time.Hour, time.Minute, "h", "min")
	case d < 1000*day:
		return pair(day, time.Hour, "d", "h")
	}
	return fmt.Sprintf("%.0f years", d.Hours()/24/365.25)
}

// Exact formats a setting without rounding, so that Parse reads the same duration back. From two
// days on it writes whole days with the unit d: 2d12h. Below two days it uses hours: 24h, 36h.
func Exact(d time.Duration) string {
	if d < 0 && d > math.MinInt64 {
		return "-" + Exact(-d)
	}
	days := ""
	if d >= 2*day {
		days = fmt.Sprintf("%dd", d/day)
		if d %= day; d == 0 {
			return days
		}
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return days + text
}

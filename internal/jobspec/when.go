package jobspec

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/headgate/headgate/throttle"
)

// ParseDuration reads "90s". The error says what to write instead.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, &throttle.FieldError{
			Field: "duration", Value: strconv.Quote(text),
			Want: "want a duration such as 90s, 30m or 24h" + inHours(text),
		}
	}
	return d, nil
}

var (
	days = regexp.MustCompile(`^(\d{1,4}) ?(d|days?|w|weeks?)$`)
	bare = regexp.MustCompile(`^\d+$`)
)

// inHours is what was probably meant: days and weeks have no unit, because
// their length depends on where one is.
func inHours(text string) string {
	if bare.MatchString(text) {
		return fmt.Sprintf(" (%ss for seconds)", text)
	}
	parts := days.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	n, _ := strconv.Atoi(parts[1])
	if parts[2][0] == 'w' {
		n *= 7
	}
	return fmt.Sprintf(" (%dh for %s)", 24*n, text)
}

// ParseTime reads "2026-01-02T15:04:05Z". The error says what to write instead.
func ParseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		y, m, d := time.Now().Date()
		tomorrow := time.Date(y, m, d+1, 9, 0, 0, 0, time.Local)
		return t, &throttle.FieldError{
			Field: "time", Value: strconv.Quote(text),
			Want: fmt.Sprintf("want a time such as %s (tomorrow at nine)", tomorrow.Format(time.RFC3339)),
		}
	}
	return t, nil
}

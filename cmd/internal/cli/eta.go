package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
)

// ETA is the time at which a job starts. JSON has the seconds until then, or null if they are unknown.
type ETA forecast.Estimate

// MarshalJSON implements json.Marshaler.
func (e ETA) MarshalJSON() ([]byte, error) {
	if !e.Known {
		return []byte("null"), nil
	}
	return json.Marshal(e.StartsIn.Seconds())
}

func (e ETA) String() string {
	switch {
	case e.AtLeast && e.StartsIn > 0:
		return "not before " + DateTime(time.Now().Add(e.StartsIn))
	case !e.Known:
		return "unknown"
	case e.Estimated:
		return "about " + Until(e.StartsIn)
	}
	return Until(e.StartsIn)
}

// Until formats the time from now until an event, with the date if it is a minute or more.
func Until(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return duration.Text(d)
	}
	return fmt.Sprintf("%s (%s)", duration.Text(d), DateTime(time.Now().Add(d)))
}

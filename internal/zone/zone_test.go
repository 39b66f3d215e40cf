package zone

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLoad_Databases: the error tells a name that no database has from a database that is missing,
// or that lacks old names.
func TestLoad_Databases(t *testing.T) {
	none, slim := []string{"", "UTC"}, []string{"", "UTC", "Europe/London", "America/New_York"}
	full := append(slices.Clone(slim), "US/Pacific")
	const unknown, missing, old = "want an IANA time zone", "no time zone database", "lacks old names"
	for _, tt := range []struct {
		name     string
		database []string
		want     string // empty for a zone that is found
	}{
		{"", none, ""}, {"UTC", none, ""}, {"Local", full, "differs from machine to machine"},
		{"America/New_York", none, missing}, {"US/Pacific", none, missing}, {"Mars/Base", none, missing},
		{"America/New_York", slim, ""}, {"US/Pacific", slim, old}, {"Mars/Base", slim, old},
		{"US/Pacific", full, ""}, {"Mars/Base", full, unknown}, {"Pacific", full, unknown},
	} {
		_, err := load(tt.name, func(name string) (*time.Location, error) {
			if !slices.Contains(tt.database, name) && name != "Local" {
				return nil, errors.New("unknown time zone " + name)
			}
			return time.UTC, nil
		})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q of %q: %v; want %q", tt.name, tt.database, err, tt.want)
		}
	}
}

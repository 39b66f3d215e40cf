// Package zone finds time zones.
package zone

import (
	"errors"
	"time"
)

// Load returns the time zone of an IANA name. The empty name is UTC. The text of its error says what
// would be right: another name, or another database of time zones.
func Load(name string) (*time.Location, error) { return load(name, time.LoadLocation) }

// load is Load with the function that looks a name up.
func load(name string, find func(string) (*time.Location, error)) (*time.Location, error) {
	has := func(name string) bool {
		_, err := find(name)
		return err == nil
	}
	switch zone, err := find(name); {
	case name == "Local":
		return nil, errors.New("it differs from machine to machine: name it, such as Europe/London")
	case err == nil:
		return zone, nil
	case !has("Europe/London"):
		return nil, errors.New("this machine has no time zone database: install tzdata, or import time/tzdata in the program")
	case !has("US/Pacific"):
		return nil, errors.New("want an IANA time zone such as UTC or America/New_York. " +
			"This machine's database lacks old names such as US/Pacific: install tzdata-legacy, or import time/tzdata in the program")
	}
	return nil, errors.New("want an IANA time zone such as UTC or America/New_York")
}

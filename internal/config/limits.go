package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/throttle"
)

// limit is a throttle.Limit as the file writes it.
type limit struct {
	Kind     throttle.Kind `yaml:"kind"`
	Rate     throttle.Rate `yaml:"rate"`
	Capacity int           `yaml:"capacity"`
	Margin   time.Duration `yaml:"margin"`
	Zone     string        `yaml:"zone"`
	Apps     []string      `yaml:"apps"`
	Lease    time.Duration `yaml:"lease"`
}

// limits checks the file's limits and returns them by name.
func (d *decoder) limits(from map[string]limit) []throttle.Limit {
	var limits []throttle.Limit
	for _, name := range slices.Sorted(maps.Keys(from)) {
		l := from[name]
		checked := throttle.Limit{
			Name: name, Kind: l.Kind, Rate: l.Rate, Capacity: l.Capacity,
			Margin: l.Margin, Zone: l.Zone, Apps: l.Apps, Lease: l.Lease,
		}
		d.checkLimit(join("limits", name), checked)
		limits = append(limits, checked)
	}
	return limits
}

// checkLimit turns each error of Validate, "field value: what is right", into
// one about the field's place.
func (d *decoder) checkLimit(path string, l throttle.Limit) {
	if d.has(path+".capacity") && l.Capacity == 0 {
		d.errorf(path+".capacity", "0: want at least 1")
	}
	err := l.Validate()
	if err == nil {
		return
	}
	for message := range strings.Lines(err.Error()) {
		field, reason, _ := strings.Cut(strings.TrimSpace(message), " ")
		at := path + "." + field
		switch {
		case field == "name":
			at = path
		case d.has(at):
		case field == "rate":
			reason = "missing: want COUNT/PERIOD, such as 2000/day, 10/s or 1/2s"
		default:
			_, want, _ := strings.Cut(reason, ": ")
			reason = "missing: " + want
		}
		d.errorf(at, "%s", reason)
	}
}

// capacityOf is the most permits that one job can take of a limit; 0 if the
// limit does not say.
func capacityOf(l throttle.Limit) int {
	switch l.Kind {
	case throttle.Funnel, throttle.TokenBucket:
		return max(1, l.Capacity)
	case throttle.Concurrency:
		return l.Capacity
	}
	return l.Rate.N
}

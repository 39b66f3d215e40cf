package config

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/throttle"
)

type limit struct {
	// Kind is how the limit counts. Required.
	Kind throttle.Kind `yaml:"kind"`
	// Rate is how many permits there are in a period. Concurrency has none. Required for every
	// other kind. Alone it can stand instead of the mapping, for a `sliding_log`.
	Rate throttle.Rate `yaml:"rate" short:""`
	// Capacity is how many permits can be taken at once. Kinds that count in windows have that
	// of their rate. Required for concurrency. The zero value means `1`.
	Capacity int `yaml:"capacity"`
	// Margin is room for jitter on the way to a server that counts strictly. It lengthens the
	// period. A fixed window opens so much later and closes so much earlier instead. The zero
	// value means none.
	Margin time.Duration `yaml:"margin"`
	// Zone is the time zone whose calendar a fixed window follows. The zero value means `UTC`.
	Zone string `yaml:"zone"`
	// Apps are the apps that may use the limit, by exact name. For others it does not exist. The
	// zero value means all.
	Apps []string `yaml:"apps"`
	// Lease is how long a permit of a concurrency limit is missing when its holder has died. The
	// zero value means throttle.DefaultLease.
	Lease time.Duration `yaml:"lease"`
	// MaxBlock is the longest that an answer of the other side shuts a key. The zero value means
	// a day, or the period if longer.
	MaxBlock time.Duration `yaml:"max_block"`
	// Adapt has each key find the pace that the other side bears. A fixed window and a concurrency
	// limit cannot. The zero value means off.
	Adapt *adapt `yaml:"adapt"`
	// Overrides are keys that count by another rate or capacity. If the tasks of the limit have
	// `key: host(…)`, a host may be spelled in any way.
	Overrides map[string]throttle.Override `yaml:"overrides"`
}

// adapt is a throttle.Adapt as the file writes it; {} adapts to refusals alone.
type adapt struct {
	// Min is the slowest pace. The zero value means a hundredth of the rate.
	Min throttle.Rate `yaml:"min"`
	// Latency is how long calls may take before the key slows down. The zero value means as long
	// as they like.
	Latency time.Duration `yaml:"latency"`
}

func (d *decoder) limits(from map[string]limit) []throttle.Limit {
	var limits []throttle.Limit
	for _, name := range slices.Sorted(maps.Keys(from)) {
		l, path := from[name], join("limits", name)
		if l.Kind == "" && d.at[path+".rate"] == d.at[path] { // the rate alone
			l.Kind = throttle.SlidingLog
		}
		checked := throttle.Limit{
			Name: name, Kind: l.Kind, Rate: l.Rate, Capacity: l.Capacity,
			Margin: l.Margin, Zone: l.Zone, Apps: l.Apps, Lease: l.Lease, MaxBlock: l.MaxBlock, Overrides: l.Overrides,
		}
		maps.DeleteFunc(l.Overrides, func(_ string, o throttle.Override) bool { return o == throttle.Override{} }) // not decoded
		if l.Adapt != nil {
			checked.Adapt = &throttle.Adapt{Min: l.Adapt.Min, Latency: l.Adapt.Latency}
		}
		d.checkLimit(path, checked)
		limits = append(limits, checked)
	}
	return limits
}

// spellOverrides brings the keys of overrides into the spelling of the jobs that use the limits.
func (d *decoder) spellOverrides(limits []throttle.Limit, tasks Tasks) {
	for i, l := range limits {
		spelled, was := map[string]throttle.Override{}, map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
			at := join(join("limits", l.Name)+".overrides", key)
			as, err := tasks.Key(l.Name, key)
			switch {
			case err != nil:
				d.errorf(at, "%v", err)
			case was[as] != "":
				d.errorf(at, "the same key as %s: keep one of them", was[as])
			}
			spelled[as], was[as] = l.Overrides[key], key
		}
		if len(spelled) > 0 {
			limits[i].Overrides = spelled
		}
	}
}

// checkLimit turns each error of Validate into one about the field's place. A
// field that is wrong and that the file does not have is missing.
func (d *decoder) checkLimit(path string, l throttle.Limit) {
	d.want(l.Capacity != 0, path+".capacity", "0: want at least 1")
	d.want(l.MaxBlock != 0, path+".max_block", "0s: want at least 1s")
	for _, e := range joined[*throttle.FieldError](l.Validate()) {
		at, value, want := path+"."+e.Field, e.Value, e.Want
		switch {
		case e.Field == "name":
			at = path
		case d.has(at):
		case e.Field == "rate":
			value, want = "missing", "want COUNT/PERIOD, such as 2000/day, 10/s or 1/2s"
		default:
			value = "missing"
		}
		d.errorf(at, "%s: %s", value, want)
	}
}

package config

import (
	"maps"
	"slices"

	"github.com/headgate/headgate/throttle"
)

func (d *decoder) checkLimits(from map[string]throttle.Limit) []throttle.Limit {
	var limits []throttle.Limit
	for _, name := range slices.Sorted(maps.Keys(from)) {
		l, path := from[name], join("limits", name)
		if l.Kind == "" && d.positions[path+".rate"] == d.positions[path] { // the file has NAME: RATE
			l.Kind = throttle.SlidingLog
		}
		l.Name = name
		maps.DeleteFunc(l.Overrides, func(_ string, o throttle.Override) bool { return o == throttle.Override{} }) // not decoded
		d.checkLimit(path, l)
		limits = append(limits, l)
	}
	return limits
}

// normalizeOverrides normalizes the keys of overrides in the same way as the keys of jobs.
func (d *decoder) normalizeOverrides(limits []throttle.Limit, tasks Tasks) {
	for i, l := range limits {
		overrides, original := map[string]throttle.Override{}, map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(l.Overrides)) {
			at := join(join("limits", l.Name)+".overrides", key)
			normal, err := tasks.NormalizeKey(l.Name, key)
			switch {
			case err != nil:
				d.errorf(at, "%v", err)
			case original[normal] != "":
				d.errorf(at, "the same key as %s: keep one of them", original[normal])
			}
			overrides[normal], original[normal] = l.Overrides[key], key
		}
		if len(overrides) > 0 {
			limits[i].Overrides = overrides
		}
	}
}

// checkLimit reports each error of Validate at its field. If the file does not have the field, the
// error says that the field is missing.
func (d *decoder) checkLimit(path string, l throttle.Limit) {
	d.want(l.Capacity != 0, path+".capacity", "0: want at least 1")
	d.want(l.MaxBlock != 0, path+".max_block", "0s: want at least 1s")
	for _, e := range errorsOf[*throttle.FieldError](l.Validate()) {
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

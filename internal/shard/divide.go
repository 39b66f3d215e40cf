package shard

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/throttle"
)

// Divide returns the shard's part of a limit. The parts of all shards add up to the limit. The
// error joins a [*throttle.FieldError] for a rate or capacity that is too small to give each shard
// a permit, and for each such override. Want names the smallest valid value.
func (s Shard) Divide(l throttle.Limit) (throttle.Limit, error) {
	var errs []error
	l.Rate, l.Capacity = s.divide(&errs, l.Kind, l.Rate, l.MaxCost())
	if a := l.Adapt; a != nil {
		slower := *a
		slower.Min.Per *= time.Duration(s.Count)
		l.Adapt = &slower
	}
	overrides := l.Overrides
	l.Overrides = nil
	for key, o := range overrides {
		part, err := s.DivideOverride(l.Kind, o)
		if err != nil {
			errs = append(errs, &throttle.FieldError{Field: "overrides", Value: key, Want: err.Error()})
		}
		if l.Overrides == nil {
			l.Overrides = map[string]throttle.Override{}
		}
		l.Overrides[key] = part
	}
	return l, errors.Join(errs...)
}

// DivideOverride returns the shard's part of an override of a limit of that kind. The error joins a
// [*throttle.FieldError] for a rate or capacity that is too small.
func (s Shard) DivideOverride(kind throttle.Kind, o throttle.Override) (throttle.Override, error) {
	var errs []error
	o.Rate, o.Capacity = s.divide(&errs, kind, o.Rate, o.Capacity)
	return o, errors.Join(errs...)
}

// divide returns the shard's part of a rate and a capacity. A zero value stays zero. For windows it
// divides the number of permits, because the length of the window must stay the same. For other
// kinds it multiplies the period and divides the capacity. If a value is too small to be divided,
// divide appends an error to errs.
func (s Shard) divide(errs *[]error, kind throttle.Kind, r throttle.Rate, capacity int) (throttle.Rate, int) {
	part := func(field, value string, n int, minimum string) int {
		if n > 0 && n < s.Count {
			*errs = append(*errs, &throttle.FieldError{
				Field: field, Value: value, Want: fmt.Sprintf("want at least %s, one for each of the %d shards of queue %s", minimum, s.Count, s.Queue),
			})
		}
		extra := 0
		if s.Index < n%s.Count {
			extra = 1
		}
		return n/s.Count + extra
	}
	if windowed(kind) {
		r.N = part("rate", r.String(), r.N, throttle.Rate{N: s.Count, Per: r.Per}.String())
		return r, 0
	}
	r.Per *= time.Duration(s.Count)
	return r, part("capacity", strconv.Itoa(capacity), capacity, strconv.Itoa(s.Count))
}

// windowed reports whether limits of a kind count the permits of a period. The capacity of such a
// limit is the N of its rate.
func windowed(kind throttle.Kind) bool {
	return kind == throttle.FixedWindow || kind == throttle.SlidingLog || kind == throttle.SlidingWindow
}

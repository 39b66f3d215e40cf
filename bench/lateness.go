package main

import (
	"math"
	"slices"
	"time"
)

// replay is a limit that is run again over the measured admissions. It shares no code with the
// limiters.
type replay interface {
	// ready returns when the next permit exists.
	ready() int64
	take(at int64)
}

// funnelReplay is a funnel with a permit every 1/n second, at most capacity of them at once. empty
// is when the funnel is empty, in n-ths of a microsecond since the start, so that it is exact.
type funnelReplay struct {
	n, capacity, start int64
	empty              int64
}

func (f *funnelReplay) ready() int64 {
	scaled := f.empty - (f.capacity-1)*int64(time.Second/time.Microsecond)
	if scaled <= 0 {
		return f.start
	}
	return f.start + (scaled+f.n-1)/f.n
}

func (f *funnelReplay) take(at int64) {
	f.empty = max(f.empty, (at-f.start)*f.n) + int64(time.Second/time.Microsecond)
}

// logReplay is a sliding log with n permits in every second.
type logReplay struct {
	n     int
	start int64
	taken []int64
}

func (l *logReplay) ready() int64 {
	if len(l.taken) < l.n {
		return l.start
	}
	return l.taken[len(l.taken)-l.n] + time.Second.Microseconds()
}

func (l *logReplay) take(at int64) { l.taken = append(l.taken, at) }

// latenesses returns, for each start, the microseconds by which the handler began after its permits
// existed. The permits exist when the limits, replayed over all earlier admissions, give them, the
// run has begun and the job is enqueued. The i-th admission counts as that of the i-th enqueued
// job.
func latenesses(s spec, begin int64, starts []start, enqueued []int64) []int64 {
	all := newReplay(s, begin)
	hosts := map[string]replay{}
	late := make([]int64, len(starts))
	for i, st := range starts {
		ready := all.ready()
		if st.Host != "" {
			host := hosts[st.Host]
			if host == nil {
				host = &funnelReplay{n: int64(s.HostRate), capacity: 1, start: begin}
				hosts[st.Host] = host
			}
			ready = max(ready, host.ready())
			host.take(st.admitted)
		}
		if i < len(enqueued) {
			ready = max(ready, enqueued[i])
		}
		all.take(st.admitted)
		late[i] = max(0, st.started-ready)
	}
	return late
}

func newReplay(s spec, begin int64) replay {
	if s.Strict {
		return &logReplay{n: s.Rate, start: begin}
	}
	return &funnelReplay{n: int64(s.Rate), capacity: int64(s.Capacity), start: begin}
}

// quantileMS returns a quantile in milliseconds of durations in microseconds, 0 of none.
func quantileMS(durations []int64, quantile float64) float64 {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return float64(sorted[int(math.Ceil(quantile*float64(len(sorted))))-1]) / 1000
}

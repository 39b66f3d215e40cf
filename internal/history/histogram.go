package history

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Histogram counts values by upper bounds, as Prometheus does.
type Histogram struct {
	bounds []float64
	counts []atomic.Uint64 // the last is of what is above all bounds
	sum    atomic.Uint64   // the bits of a float64
}

// The upper bounds, in seconds; of denials in times.
var (
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	durations = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	waits     = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}
	times     = []float64{0, 1, 2, 3, 4, 5, 10, 20, 50}
)

func newHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.counts[i].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *Histogram) took(d time.Duration) { h.observe(max(0, d).Seconds()) }

// load is how many values there are up to each bound, and above the one before.
func (h *Histogram) load() []uint64 {
	counts := make([]uint64, len(h.counts))
	for i := range h.counts {
		counts[i] = h.counts[i].Load()
	}
	return counts
}

// Snapshot is what was counted: how many values in all, their sum, and how many
// of them are at most each bound.
func (h *Histogram) Snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += h.counts[i].Load()
		buckets[bound] = count
	}
	count += h.counts[len(h.bounds)].Load()
	return count, math.Float64frombits(h.sum.Load()), buckets
}

package stats

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// Histogram counts values by upper bounds, as Prometheus does. It is safe for concurrent use.
type Histogram struct {
	bounds []float64
	counts []atomic.Uint64 // for each bound the values above the previous one; the last has no bound
	sum    atomic.Uint64   // the bits of a float64
}

// Upper bounds in seconds, and for denials their number.
var (
	latencyBounds  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	durationBounds = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	waitBounds     = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}
	denialBounds   = []float64{0, 1, 2, 3, 4, 5, 10, 20, 50}
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

func (h *Histogram) observeDuration(d time.Duration) { h.observe(max(0, d).Seconds()) }

// Snapshot returns the number of observed values, their sum, and for each bound the number of values
// up to it.
func (h *Histogram) Snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i := range h.counts {
		count += h.counts[i].Load()
		if i < len(h.bounds) {
			buckets[h.bounds[i]] = count
		}
	}
	return count, math.Float64frombits(h.sum.Load()), buckets
}

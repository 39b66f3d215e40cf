package history

import (
	"slices"
	"sync"
	"time"
)

// Histogram counts values by upper bounds, as Prometheus does.
type Histogram struct {
	bounds []float64

	mu     sync.Mutex
	counts []uint64 // up to each bound, and above the one before; the last is above all
	sum    float64
}

// The upper bounds, in seconds; of denials in times.
var (
	latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	durations = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600}
	waits     = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600}
	times     = []float64{0, 1, 2, 3, 4, 5, 10, 20, 50}
)

func newHistogram(bounds []float64) *Histogram {
	return &Histogram{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

func (h *Histogram) observe(v float64) {
	i, _ := slices.BinarySearch(h.bounds, v)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[i]++
	h.sum += v
}

func (h *Histogram) took(d time.Duration) { h.observe(max(0, d).Seconds()) }

func (h *Histogram) load() (counts []uint64, sum float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.counts), h.sum
}

// Snapshot is what was counted: how many values in all, their sum, and how many
// of them are at most each bound.
func (h *Histogram) Snapshot() (count uint64, sum float64, buckets map[float64]uint64) {
	counts, sum := h.load()
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += counts[i]
		buckets[bound] = count
	}
	return count + counts[len(h.bounds)], sum, buckets
}

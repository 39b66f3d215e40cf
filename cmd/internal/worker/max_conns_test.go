package worker

import (
	"math"
	"testing"
)

// TestConnsOf: half of the descriptors are left to Redis and the jobs.
func TestConnsOf(t *testing.T) {
	for descriptors, want := range map[uint64]int{0: 1, 300: 150, 1024: 512, 1200: 600, math.MaxUint64: 600} {
		if got := connsOf(descriptors); got != want {
			t.Errorf("with %d descriptors %d connections, want %d", descriptors, got, want)
		}
	}
}

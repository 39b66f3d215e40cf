package main

import "testing"

// The permits take 2 s, so jobs by 2.02 s are in time.
func TestInTime(t *testing.T) {
	s := spec{Jobs: 4, Rate: 1, Capacity: 2, Hosts: 2, HostRate: 1}
	const begin = 5_000_000
	for _, test := range []struct {
		name   string
		starts []int64 // milliseconds
		want   float64
	}{
		{"all", []int64{0, 0, 1000, 2020}, 1},
		{"one is late", []int64{0, 0, 1500, 2021}, 0.75},
		{"one never started", []int64{0, 0, 1000}, 0.75},
	} {
		var starts []start
		for _, at := range test.starts {
			starts = append(starts, start{started: begin + at*ms})
		}
		if got := s.inTime(begin, starts); got != test.want {
			t.Errorf("%s: %v in time, want %v", test.name, got, test.want)
		}
	}
}

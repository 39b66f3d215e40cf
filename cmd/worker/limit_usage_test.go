package main

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/meter"
	"github.com/headgate/headgate/internal/waitdb"
)

// TestUsageView: a line of "limits show" says what is used, and why none remains.
func TestUsageView(t *testing.T) {
	bucket := waitdb.Meter{Kind: meter.TokenBucket, Capacity: 1000, Known: true}
	free, debt := bucket, bucket
	free.Left, free.Wanted, debt.Owed, debt.NextIn = 400, 5000, 30, 31*time.Second
	slots := waitdb.Meter{Kind: meter.Concurrency, Capacity: 5}
	for want, u := range map[string]inspect.Usage{
		"k: 1,000 of 1,000 permits used, 30 permits owed, the next is free in 31 s": {Meter: debt},
		"k: 600 of 1,000 permits used, the free ones are for waiting jobs":          {Meter: free},
		"k: 600 of 1,000 permits used, all are free in 40 s":                        {Meter: free, Remaining: 400, ResetAfter: 40 * time.Second},
		"k: 5 of 5 slots in use, the next is free at an unknown time":               {Meter: withNext(slots), ResetAfter: time.Second},
	} {
		if got := newUsageView("k", u).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func withNext(m waitdb.Meter) waitdb.Meter {
	m.NextIn = time.Second
	return m
}

package cron

import (
	"fmt"
	"testing"
	"time"
)

func TestSet_Error_ChangesNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.start(nil, hourly(nil))
		until(1, 30)
		if err := r.Set([]Entry{hourly(func(e *Entry) { e.Cron = "30 * * * *" }), {Name: "bad", Cron: "0 0 31 2 *", Type: "x"}}); err == nil {
			b.Error("no error")
		}
		until(3, 15)
		b.wantTicks(1, 2, 3)
	})
}

// TestSet_WhileRunning changes, removes and adds an entry again on two replicas, one some seconds
// after the other.
func TestSet_WhileRunning(t *testing.T) {
	inBubble(t, func(b *bubble) {
		every := hourly(func(e *Entry) { e.Missed = MissedAll })
		half := hourly(func(e *Entry) { e.Cron, e.Missed = "30 * * * *", MissedAll })
		off := hourly(func(e *Entry) { e.Missed, e.Disabled = MissedAll, true })
		replicas := []*replica{b.start(nil, every), b.start(nil, every)}
		set := func(entries ...Entry) {
			for _, r := range replicas {
				b.must(r.Set(entries))
				time.Sleep(5 * time.Second)
			}
		}
		until(2, 15)
		set(half) // 2:30, 3:30
		until(4, 15)
		set() // nothing
		until(6, 15)
		set(every) // 7:00
		until(7, 15)
		set(off)
		until(9, 15)
		replicas[0].end() // it starts again with the entry disabled
		replicas[0] = b.start(nil, off)
		until(10, 15)
		set(every) // 11:00
		until(11, 15)
		want := sweepIDs(1, 2)
		for _, hour := range []int{2, 3} {
			want = append(want, fmt.Sprintf("sweep@%d", time.Date(2000, 1, 1, hour, 30, 0, 0, time.UTC).Unix()))
		}
		b.wantIDs(append(want, sweepIDs(7, 11)...))
	})
}

// TestSet_RemovedAndBack_KeepsState removes an entry and adds it again between two passes.
func TestSet_RemovedAndBack_KeepsState(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.replica(nil, hourly(nil))
		r.pass(b.Context())
		b.must(r.Set(nil))
		b.must(r.Set([]Entry{hourly(nil)}))
		r.pass(b.Context())
		if spec := b.m.HGet(sweepKey, "spec"); spec != "UTC 0 * * * *" {
			b.Errorf("the entry is there, but the state says %q", spec)
		}
	})
}

// TestSet_RemovedOnOneReplica_OthersTick: the state is kept while one of two replicas has the entry.
func TestSet_RemovedOnOneReplica_OthersTick(t *testing.T) {
	for _, paused := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			r := b.start(nil, hourly(nil))
			b.start(nil, hourly(nil))
			until(0, 30)
			want := []int{1, 2, 3}
			if paused {
				b.must(r.Pause(b.Context(), "sweep"))
				want = nil
			}
			b.must(r.Set(nil))
			until(0, 31)
			if stays := b.m.TTL(sweepKey) == 0; stays != paused {
				b.Errorf("the removed entry's state stays for good: %v, want %v", stays, paused)
			}
			until(3, 30)
			b.wantTicks(want...)
			if b.m.TTL(sweepKey) != 0 {
				b.Error("the state will be forgotten, but the entry is there")
			}
		})
	}
}

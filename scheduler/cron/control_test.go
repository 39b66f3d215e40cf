package cron

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPause_StopsAllReplicas(t *testing.T) {
	inBubble(t, func(b *bubble) {
		every := hourly(func(e *Entry) { e.Missed = MissedAll })
		b.start(nil, every)
		second, operator := b.start(nil, every), b.replica(nil, every)
		until(2, 30)
		b.must(operator.Pause(b.Context(), "sweep"))
		until(3, 30)
		b.must(operator.Pause(b.Context(), "sweep")) // has no effect
		second.end()                                 // a pause outlives restarts
		b.start(nil, every)
		if s := b.list(operator); !s.Paused || len(s.Next) != 0 {
			b.Errorf("while paused: %+v", s)
		}
		until(5, 30)
		for range 2 { // the second has nothing to do
			b.must(operator.Resume(b.Context(), "sweep"))
		}
		until(7, 30)
		b.must(operator.Pause(b.Context(), "sweep"))
		until(9, 30)
		b.wantTicks(1, 2, 6, 7)
	})
}

// TestPause_TickBefore_Runs: a tick that was due before a pause is enqueued.
func TestPause_TickBefore_Runs(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.replica(nil, hourly(nil))
		r.pass(b.Context())
		until(1, 0)
		b.must(r.Pause(b.Context(), "sweep"))
		r.pass(b.Context())
		b.wantTicks(1)
	})
}

// TestPause_DisabledEntry_Stays pauses an entry before or after it is disabled. The state is kept for
// longer than that of a disabled entry which is not paused.
func TestPause_DisabledEntry_Stays(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		inBubble(t, func(b *bubble) {
			r := b.replica(nil, hourly(nil))
			r.pass(b.Context())
			steps := []func() error{
				func() error { return r.Pause(b.Context(), "sweep") },
				func() error { return r.Set([]Entry{hourly(func(e *Entry) { e.Disabled = true })}) },
			}
			if when == "after" {
				slices.Reverse(steps)
			}
			for _, do := range steps {
				b.must(do())
				time.Sleep(time.Minute)
				r.pass(b.Context())
			}
			time.Sleep(60 * day)
			b.must(r.Set([]Entry{hourly(nil)}))
			for range 2 {
				r.pass(b.Context())
				time.Sleep(time.Hour)
			}
			if s := b.list(r); !s.Paused {
				b.Errorf("paused %s it was disabled: %+v, want it paused still", when, s)
			}
			b.wantTicks()
		})
	}
}

// TestResume_OtherLine_LeavesTicks: a Resume by a replica with another cron line leaves the ticks
// before the pause to replicas with the old one.
func TestResume_OtherLine_LeavesTicks(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start(nil, hourly(nil))
		until(1, 30)
		operator := b.replica(nil, hourly(func(e *Entry) { e.Cron, e.Missed = "*/10 * * * *", MissedAll }))
		b.must(operator.Pause(b.Context(), "sweep"))
		until(2, 30)
		b.must(operator.Resume(b.Context(), "sweep"))
		if spec := b.m.HGet(sweepKey, "spec"); spec != "UTC 0 * * * *" {
			b.Errorf("the state says %q after a Resume", spec)
		}
		until(3, 30)
		b.wantTicks(1, 3)
	})
}

func TestListAndTrigger(t *testing.T) {
	inBubble(t, func(b *bubble) {
		r := b.replica(nil, hourly(func(e *Entry) { e.Zone = "Asia/Kathmandu" }), Entry{Name: "off", Cron: "@daily", Type: "x", Disabled: true})
		list, err := r.List(b.Context(), 2)
		b.must(err)
		var got []string
		for _, s := range list {
			got = append(got, s.Entry.Name)
			for _, next := range s.Next {
				got = append(got, next.Format("15:04 -0700"))
			}
		}
		if diff := cmp.Diff([]string{"off", "sweep", "06:00 +0545", "07:00 +0545"}, got); diff != "" {
			b.Error(diff)
		}
		id, err := r.Trigger(b.Context(), "sweep")
		b.must(err)
		b.wantIDs([]string{id})
		_, err = r.Trigger(b.Context(), "swep")
		for _, err := range []error{err, r.Pause(b.Context(), "swep"), r.Resume(b.Context(), "swep")} {
			if !errors.Is(err, ErrNoSchedule) || !strings.Contains(err.Error(), `"swep"`) {
				b.Errorf("got %v, want ErrNoSchedule with the name", err)
			}
		}
	})
}

func TestOriginOf(t *testing.T) {
	tick := time.Unix(1795000000, 0)
	for _, want := range []Origin{
		{defaultScope, "nightly", tick, false},
		{"shop", "a:b.c-d_e", tick, false},
		{"shop", "nightly", tick.Add(time.Microsecond), true},
	} {
		job := fmt.Sprint(want.At.Unix())
		if want.Triggered {
			job = "run-1795000000000001"
		}
		id := (&Runner{scope: want.Scope}).jobID(want.Entry, job)
		if got, ok := OriginOf(id); !ok || got != want {
			t.Errorf("%s: %v, %v; want %v", id, got, ok, want)
		}
	}
	for _, id := range []string{"", "nightly", "nightly@", "@5", "a@b", "nightly@run-", "a b@5", "x/y/z@5", "mail@example.com", "\x1b[31m@5"} {
		if got, ok := OriginOf(id); ok {
			t.Errorf("%q: %v", id, got)
		}
	}
}

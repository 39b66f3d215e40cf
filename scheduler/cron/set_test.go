package cron

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestSet_Error_ChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		r := startReplica(t, m, q, []Entry{hourly(nil)}, nil)
		until(1, 30)
		err := r.Set([]Entry{
			hourly(func(e *Entry) { e.Cron = "30 * * * *" }),
			{Name: "bad", Cron: "0 0 31 2 *", Type: "x"},
			{Name: "worse", Cron: "0 0 * * *", Zone: "Nowhere", Type: "x"},
			hourly(nil),
		})
		for _, want := range []string{`"bad": cron`, `"worse": zone`, `"sweep": name "sweep" is there twice`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want it to say %s", err, want)
			}
		}
		until(3, 15)
		r.end()
		checkIDs(t, q.ids(), sweepIDs(1, 2, 3))
	})
}

// TestSet_WhileRunning changes, removes and adds an entry again on two replicas, one some seconds
// after the other.
func TestSet_WhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		q := newJobQueue()
		every := hourly(func(e *Entry) { e.Missed = MissedAll })
		half := hourly(func(e *Entry) { e.Cron, e.Missed = "30 * * * *", MissedAll })
		off := hourly(func(e *Entry) { e.Missed, e.Disabled = MissedAll, true })
		a, b := startReplica(t, m, q, []Entry{every}, nil), startReplica(t, m, q, []Entry{every}, nil)
		set := func(entries ...Entry) {
			for _, r := range []*replica{a, b} {
				if err := r.Set(entries); err != nil {
					t.Fatal(err)
				}
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
		a.end() // it starts again with the entry disabled
		a = startReplica(t, m, q, []Entry{off}, nil)
		until(10, 15)
		set(every) // 11:00
		until(11, 15)
		a.end()
		b.end()
		want := sweepIDs(1, 2)
		for _, hour := range []int{2, 3} {
			want = append(want, fmt.Sprintf("sweep@%d", time.Date(2000, 1, 1, hour, 30, 0, 0, time.UTC).Unix()))
		}
		checkIDs(t, q.ids(), append(want, sweepIDs(7, 11)...))
	})
}

// TestSet_RemovedAndBack_KeepsState removes an entry and adds it again between two passes.
func TestSet_RemovedAndBack_KeepsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := redistest.Mini(t)
		r := newReplica(t, m, newJobQueue(), []Entry{hourly(nil)}, nil)
		r.pass(t.Context())
		for _, entries := range [][]Entry{nil, {hourly(nil)}} {
			if err := r.Set(entries); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(t.Context())
		if spec := m.HGet("hg:{default}:cron:sweep", "spec"); spec != "UTC 0 * * * *" {
			t.Errorf("the entry is there, but the state says %q", spec)
		}
	})
}

// TestSet_RemovedOnOneReplica_OthersTick: the state is kept while one of two replicas has the entry.
func TestSet_RemovedOnOneReplica_OthersTick(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := redistest.Mini(t)
			q := newJobQueue()
			a, b := startReplica(t, m, q, []Entry{hourly(nil)}, nil), startReplica(t, m, q, []Entry{hourly(nil)}, nil)
			until(0, 30)
			if paused {
				if err := a.Pause(t.Context(), "sweep"); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Set(nil); err != nil {
				t.Fatal(err)
			}
			until(0, 31)
			if stays := m.TTL("hg:{default}:cron:sweep") == 0; stays != paused {
				t.Errorf("the removed entry's state stays for good: %v, want %v", stays, paused)
			}
			until(3, 30)
			a.end()
			b.end()
			if m.TTL("hg:{default}:cron:sweep") != 0 {
				t.Error("the state will be forgotten, but the entry is there")
			}
			if want := sweepIDs(1, 2, 3); !paused {
				checkIDs(t, q.ids(), want)
			}
		})
	}
}

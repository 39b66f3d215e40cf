package history

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
)

// waited is a job that got its permits after so long.
func waited(r *Recorder, wait time.Duration) {
	needs, d := allowed("api", 1)
	d.Denials, d.Waited = 1, wait
	decide(r, "x", needs, d)
}

// TestThePastIsToldByTheClock: what was written is found in the slices in which Redis had
// it written, minutes for a day and hours for a month.
func TestThePastIsToldByTheClock(t *testing.T) {
	m, rdb := redistest.Mini(t)
	r := New(rdb, lua.Prefix("s"))
	zone := time.FixedZone("east", 5*3600)
	began := time.Date(2026, 3, 1, 0, 10, 0, 0, zone)
	mail := Task{"default", "mail"}
	at := func(after time.Duration) {
		m.SetTime(began.Add(after))
		run(r, mail, Done)
		run(r, mail, Failed)
		run(r, mail, Archived)
		waited(r, 40*time.Second)
		needs, d := denied("api", "k", time.Minute)
		decide(r, "x", needs, d)
		r.write(t.Context())
	}
	at(0)
	at(30 * time.Second)
	at(50 * time.Minute)

	past := func(from, to, step time.Duration) (found map[string]int64, n int) {
		t.Helper()
		all, err := ReadPast(t.Context(), rdb, "s", began.Add(from), began.Add(to), step)
		if err != nil {
			t.Fatal(err)
		}
		found = map[string]int64{}
		for _, s := range all.Slices {
			if s.Done == 0 && len(s.Tasks)+len(s.Limits) == 0 {
				continue
			}
			ended := []TaskEnded{{mail.Queue, mail.Type, Ended{Done: s.Done, Failed: s.Done, FailedAttempts: 2 * s.Done}}}
			decided := []LimitDecided{{"api", Decided{Allowed: s.Done, Denied: s.Done}}}
			if diff := cmp.Diff(ended, s.Tasks) + cmp.Diff(decided, s.Limits); diff != "" || s.Ended != ended[0].Ended || s.Decided != decided[0].Decided {
				t.Errorf("%+v: want as many of each (-want +got):\n%s", s, diff)
			}
			found[s.From.Format("2 15:04")] = s.Done
			if p50 := s.WaitP50; p50 == nil || *p50 < 30 || *p50 > 60 {
				t.Errorf("half waited for %v; want 30 s to a minute", p50)
			}
		}
		return found, len(all.Slices)
	}
	check := func(from, to, step time.Duration, slices int, want map[string]int64) {
		t.Helper()
		got, n := past(from, to, step)
		if diff := cmp.Diff(want, got); diff != "" || n != slices {
			t.Errorf("from %v to %v by %v: %d slices, want %d (-want +got):\n%s", from, to, step, n, slices, diff)
		}
	}
	check(0, time.Hour, time.Minute, 61, map[string]int64{"1 00:10": 2, "1 01:00": 1})
	check(5*time.Minute, time.Hour, time.Minute, 56, map[string]int64{"1 01:00": 1})
	check(0, 50*time.Minute, 15*time.Minute, 5, map[string]int64{"1 00:00": 2, "1 01:00": 1})
	at(30 * time.Hour)
	check(0, 30*time.Hour, 24*time.Hour, 2, map[string]int64{"1 00:00": 3, "2 00:00": 1})
	check(0, 30*time.Hour, time.Minute, 1801, map[string]int64{"2 06:10": 1}) // there are no older minutes
	check(-50*24*time.Hour, 0, 24*time.Hour, 51, map[string]int64{"1 00:00": 3})
}

// TestThePastEnds: its keys go by themselves, and are bounded however many names there are.
func TestThePastEnds(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		r, ctx := New(rdb, lua.Prefix("s")), t.Context()
		for round := range 70 {
			for i := range 50 {
				run(r, Task{"default", fmt.Sprint(round, "-", i)}, Done)
			}
			r.write(ctx)
			clear(r.tasks) // as other processes would name other tasks
		}
		for key, most := range map[string]struct {
			fields int64
			life   time.Duration
		}{"minutes": {6000, 25 * time.Hour}, "hours": {2400, 31 * 24 * time.Hour}} {
			names := rdb.Keys(ctx, lua.Prefix("s")+key+":*").Val()
			for _, name := range names {
				fields, life := rdb.HLen(ctx, name).Val(), rdb.PTTL(ctx, name).Val()
				if fields > most.fields+2 || life <= 0 || life > most.life {
					t.Errorf("%s has %d fields and lives %v, want at most %v", name, fields, life, most)
				}
			}
			if len(names) == 0 || len(names) > 2 { // the clock moves
				t.Errorf("the keys are %q, want one or two", names)
			}
		}
		past, err := ReadPast(ctx, rdb, "s", time.Now().Add(-time.Hour), time.Now().Add(time.Minute), time.Hour)
		done := int64(0)
		for _, s := range past.Slices {
			done += s.Done
		}
		if done != past.Whole.Done {
			t.Errorf("%d jobs are in the slices, and %d in all", done, past.Whole.Done)
		}
		if done != 3500 || err != nil {
			t.Errorf("%d jobs are told of, %v; want 3500", done, err)
		}
	})
}

func TestQuantiles(t *testing.T) {
	of := func(counts map[float64]int64) waitCounts {
		w := make(waitCounts, len(waits)+1)
		for i, bound := range waits {
			w[i] = counts[bound]
		}
		w[len(waits)] = counts[0]
		return w
	}
	for _, tt := range []struct {
		waits waitCounts
		share float64
		want  *float64
	}{
		{of(nil), .5, nil},
		{of(map[float64]int64{60: 10}), .5, new(45.0)},
		{of(map[float64]int64{60: 10}), 1, new(60.0)},
		{of(map[float64]int64{1: 98, 60: 2}), .99, new(45.0)},
		{of(map[float64]int64{0: 1}), .5, new(7 * 24 * 3600.0)},
	} {
		if diff := cmp.Diff(tt.want, tt.waits.quantile(tt.share)); diff != "" {
			t.Errorf("%v of %v (-want +got):\n%s", tt.share, tt.waits, diff)
		}
	}
}

// TestProcesses: each is told of while it lives, for an hour when it is gone without a
// word, and no more when it has stopped.
func TestProcesses(t *testing.T) {
	m, rdb := redistest.Mini(t)
	began := time.Now()
	m.SetTime(began)
	stops, dies := New(rdb, lua.Prefix("s")), New(rdb, lua.Prefix("s"))
	stops.Describe("headgate.yaml 12345678")
	stops.Concurrency = 7
	defer stops.Began(Task{"default", "mail"})(Done)
	stops.sayAlive(t.Context())
	dies.sayAlive(t.Context())
	processes := func(after time.Duration) map[string]Process {
		t.Helper()
		m.SetTime(began.Add(after))
		all, err := Processes(t.Context(), rdb, "s")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]Process{}
		for _, p := range all {
			found[p.ID] = p
		}
		return found
	}
	p := processes(0)[stops.process]
	if p.Host == "" || p.PID == 0 || p.Version == "" || p.Config != "headgate.yaml 12345678" || p.Running != 1 || p.Concurrency != 7 || p.Gone || p.Seen.Sub(began).Abs() > time.Second {
		t.Errorf("%+v; want all that was said", p)
	}
	if all := processes(goneAfter + time.Second); len(all) != 2 || !all[dies.process].Gone {
		t.Errorf("%+v; want both, and gone", all)
	}
	stops.sayAlive(t.Context())
	if all := processes(goneAfter + time.Second); all[stops.process].Gone || !all[dies.process].Gone {
		t.Errorf("%+v; want one that is gone", all)
	}
	stops.say(t.Context(), "")
	if all := processes(goneAfter + time.Second); len(all) != 1 || !all[dies.process].Gone {
		t.Errorf("%+v; want the one that is gone", all)
	}
	m.SetTime(began.Add(aliveLife + time.Minute))
	stops.sayAlive(t.Context())
	if all := processes(aliveLife + time.Minute); len(all) != 1 || all[stops.process].Gone {
		t.Errorf("%+v; want the one that lives", all)
	}
}

package waitdb_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// What the upstream answers blocks a key for as long as the limit allows that, however
// far off the time is that it names. An operator may name any.
func TestRateLimited_MaxBlock(t *testing.T) {
	for name, tt := range map[string]struct {
		limit throttle.Limit
		want  time.Duration
	}{
		"by default a day":   {throttle.Limit{Rate: throttle.PerSecond(10)}, throttle.Day},
		"or a longer period": {throttle.Limit{Rate: throttle.Rate{N: 3, Per: throttle.Week}}, throttle.Week},
		"the limit's own":    {throttle.Limit{Rate: throttle.PerSecond(10), MaxBlock: time.Minute}, time.Minute},
		"more than a day":    {throttle.Limit{Rate: throttle.PerSecond(10), MaxBlock: throttle.Week}, throttle.Week},
	} {
		t.Run(name, func(t *testing.T) {
			onRedis(t, func(t *testing.T, s *fixture) {
				tt.limit.Name, tt.limit.Kind = "host", throttle.SlidingLog
				define(t, s, tt.limit)
				blocked := func(key string) time.Duration {
					blocks, err := s.lanes.Blocks(t.Context(), "host")
					must(t, err)
					for _, b := range blocks {
						if b.Key == key {
							return b.Until.Sub(s.now).Round(time.Second)
						}
					}
					return 0
				}
				for key, asked := range map[string]time.Duration{"a year": 365 * throttle.Day, "as long": tt.want, "shorter": tt.want - 10*time.Second} {
					need := throttle.Need{Limit: "host", Key: key}
					must(t, s.lanes.Internals().BlockFor(t.Context(), asked, need))
					expect(t, "blocked for "+key, blocked(key), min(asked, tt.want))

					need.Key += " refused"
					job := waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: key}}
					d, err := s.lanes.Acquire(t.Context(), job, need)
					must(t, err)
					d, err = s.lanes.RateLimited(t.Context(), job, waitdb.RateLimit{At: d.At, For: asked, Blocks: []throttle.Need{need}}, need)
					must(t, err)
					expect(t, "refused for "+key, blocked(need.Key), min(asked, tt.want))
					expect(t, "and its job", d.RetryAfter.Round(time.Second), min(asked, tt.want))
					expect(t, "reported", d.Blocked.Round(time.Second), min(asked, tt.want))
				}
				must(t, s.Block(t.Context(), "host", "by hand", s.now.Add(300*throttle.Day)))
				expect(t, "by hand", blocked("by hand"), 300*throttle.Day)
			})
		})
	}
}

// A refusal that names no time blocks for at most that, too.
func TestRateLimited_InARow_MaxBlock(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10), MaxBlock: 3 * time.Second})
		need := throttle.Need{Limit: "host", Key: "k"}
		job := waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: "j"}}
		for range 6 {
			s.wait(time.Minute)
			d, err := s.lanes.Acquire(t.Context(), job, need)
			must(t, err)
			if d, err = s.lanes.RateLimited(t.Context(), job, waitdb.RateLimit{At: d.At, For: -1, Blocks: []throttle.Need{need}}, need); err != nil || d.RetryAfter > 3*time.Second {
				t.Fatal(d, err)
			}
		}
	})
}

// onAdapting runs f on a limit of ten a second that adapts, with a function that
// takes a permit of key k, reports how its call went, and returns the key's pace.
func onAdapting(t *testing.T, adapt throttle.Adapt, f func(t *testing.T, s *fixture, call func(refused bool, latency time.Duration) string)) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 10, Adapt: &adapt})
		id := 0
		f(t, s, func(refused bool, latency time.Duration) string {
			t.Helper()
			need := throttle.Need{Limit: "host", Key: "k"}
			id++
			job := waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(id)}}
			s.wait(time.Minute)
			d, err := s.lanes.Acquire(t.Context(), job, need)
			must(t, err)
			if !d.OK() {
				t.Fatal(d)
			}
			s.wait(time.Second)
			if refused {
				_, err = s.lanes.RateLimited(t.Context(), job, waitdb.RateLimit{At: d.At, For: -1, Blocks: []throttle.Need{need}}, need)
				must(t, err)
				_, err = s.lanes.Forget(t.Context(), job.JobID)
			} else {
				err = s.lanes.Accepted(t.Context(), d.At, latency, d.Taken...)
			}
			must(t, err)
			keys, err := s.Keys(t.Context(), "host")
			must(t, err)
			if len(keys) == 0 {
				return ""
			}
			return paceOf(keys[0])
		})
	})
}

// paceOf returns the pace that feedback has found for a key.
func paceOf(k throttle.KeyState) string {
	_, pace, _ := strings.Cut(k.String(), "now ")
	pace, _, _ = strings.Cut(pace, " (")
	return pace
}

// TestAdapt_RateLimited: half at the first, half again in a row, a tenth later; slowly
// up again, and never below the least nor above the rate.
func TestAdapt_RateLimited(t *testing.T) {
	onAdapting(t, throttle.Adapt{Min: throttle.PerSecond(2)}, func(t *testing.T, s *fixture, call func(bool, time.Duration) string) {
		expect(t, "at first", call(false, 0), "")
		expect(t, "refused", call(true, 0), "5/s")
		d, err := s.AllowN(t.Context(), "host", "k", 0)
		must(t, err)
		if d.OK() || d.RetryAfter < 500*time.Millisecond || d.RetryAfter > time.Second {
			t.Errorf("blocked: %s, want for half a second to a second", d)
		}
		expect(t, "refused in a row", call(true, 0), "2.5/s")
		expect(t, "the least", call(true, 0), "2/s")
		expect(t, "ten seconds' gain", call(false, 0), "2.1/s")
		expect(t, "a tenth less", call(true, 0), "2/s")
		for range 100 {
			call(false, 0)
		}
		expect(t, "in the end", call(false, 0), "")
		must(t, s.SetKey(t.Context(), "host", "k", throttle.Override{Rate: throttle.PerSecond(4)}))
		expect(t, "half of the key's own rate", call(true, 0), "2/s")
		must(t, s.Reset(t.Context(), "host", "k"))
		expect(t, "after a reset", call(false, 0), "")
		expect(t, "refused once more", call(true, 0), "2/s")
		s.wait(2 * time.Hour)
		expect(t, "what was learned hours ago", call(false, 0), "")
		keys, err := s.Keys(t.Context(), "host")
		must(t, err)
		expect(t, "the rate still holds", keys[0].Override.Rate, throttle.PerSecond(4))
	})
}

// TestAdapt_ManyCalls: a key gets faster by the time that has gone by, however many
// calls are accepted meanwhile.
func TestAdapt_ManyCalls(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		define(t, s, throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(5000), Adapt: &throttle.Adapt{Min: throttle.PerSecond(50)}})
		need := throttle.Need{Limit: "host", Key: "k"}
		for range 10 {
			s.wait(time.Second)
			must(t, s.lanes.Accepted(t.Context(), s.now, waitdb.Overload, need))
		}
		for range 400 {
			s.wait(500 * time.Microsecond)
			must(t, s.lanes.Accepted(t.Context(), s.now, 0, need))
		}
		keys, err := s.Keys(t.Context(), "host")
		must(t, err)
		expect(t, "after 200 ms", keys[0].Share, 0.0102)
	})
}

// TestAdapt_Latency: at once as slow as the latency wants it, by half of the way
// back; other keys do not notice.
func TestAdapt_Latency(t *testing.T) {
	onAdapting(t, throttle.Adapt{Latency: 500 * time.Millisecond}, func(t *testing.T, s *fixture, call func(bool, time.Duration) string) {
		expect(t, "as wanted", call(false, 400*time.Millisecond), "")
		expect(t, "a clock that stepped back meanwhile", call(false, -time.Second), "")
		expect(t, "four times as long", call(false, 2*time.Second), "2.5/s")
		expect(t, "half of the way back", call(false, 500*time.Millisecond), "4/s")
		expect(t, "the least", call(false, time.Hour), "6/m")
		other, err := s.AllowN(t.Context(), "host", "other", 10)
		must(t, err)
		expect(t, "another key", other.ResetAfter, time.Second)
		limit := throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 10}
		limit.Adapt = &throttle.Adapt{}
		define(t, s, limit)
		expect(t, "where latency does not matter any more", call(false, time.Hour), "")
		limit.Adapt = nil
		define(t, s, limit)
		s.wait(time.Second)
		expect(t, "a limit that adapts no more", ask(t, s, "host", 10).ResetAfter, time.Second)
	})
}

// TestAdapt_Overload: as to refusals, once for calls that were underway at the same
// time, but nothing is blocked; a limit that does not adapt takes no notice.
func TestAdapt_Overload(t *testing.T) {
	onAdapting(t, throttle.Adapt{Min: throttle.PerSecond(2)}, func(t *testing.T, s *fixture, call func(bool, time.Duration) string) {
		define(t, s, throttle.Limit{Name: "shared", Kind: throttle.Funnel, Rate: throttle.PerSecond(10)})
		pace := func(at time.Time) []throttle.KeyState {
			t.Helper()
			must(t, s.lanes.Accepted(t.Context(), at, waitdb.Overload, throttle.Need{Limit: "host", Key: "k"}, throttle.Need{Limit: "shared"}))
			none, err := s.Keys(t.Context(), "shared")
			must(t, err)
			expect(t, "of the limit that does not adapt", len(none), 0)
			keys, err := s.Keys(t.Context(), "host")
			must(t, err)
			return keys
		}
		before := s.now
		s.wait(time.Second)
		expect(t, "at first", paceOf(pace(before)[0]), "5/s")
		expect(t, "underway by then", paceOf(pace(before)[0]), "5/s")
		s.wait(time.Second)
		expect(t, "in a row", paceOf(pace(s.now)[0]), "2.5/s")
		blocks, err := s.lanes.Blocks(t.Context(), "host")
		must(t, err)
		expect(t, "blocks", len(blocks), 0)
		expect(t, "ten seconds' gain", call(false, 0), "2.6/s")
	})
}

// A job that alone is refused waits behind all others, also behind those that come later, and is
// found to be refused for its own sake when another was served. If another is refused, too, both wait
// at the head, in the order in which they were allowed, and a third one is tried before them.
func TestRateLimited_WhoTriesNext(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		need := throttle.Need{Limit: "host", Key: "k"}
		job := func(id string) waitdb.Job { return waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: id}} }
		acquire := func(id string) waitdb.Decision {
			t.Helper()
			s.wait(time.Millisecond)
			d, err := s.lanes.Acquire(t.Context(), job(id), need)
			must(t, err)
			return d
		}
		refuse := func(id string, at waitdb.Decision, limit waitdb.RateLimit) waitdb.Decision {
			t.Helper()
			s.wait(time.Millisecond)
			limit.At, limit.For, limit.Blocks = at.At, time.Second, []throttle.Need{need}
			d, err := s.lanes.RateLimited(t.Context(), job(id), limit, need)
			must(t, err)
			return d
		}
		order := func() string {
			t.Helper()
			lanes, err := s.rdb.Keys(t.Context(), "*:lane:*").Result()
			must(t, err)
			ids, err := s.rdb.ZRange(t.Context(), lanes[0], 0, -1).Result()
			must(t, err)
			prefix, _, _ := strings.Cut(lanes[0], "lane:")
			for _, id := range ids { // a record has the ticket of its lane
				score, err := s.rdb.ZScore(t.Context(), lanes[0], id).Result()
				must(t, err)
				ticket, _, _ := strings.Cut(s.rdb.HGet(t.Context(), prefix+"jobs", "q\n"+id).Val(), "\n")
				expect(t, "ticket of "+id, ticket, fmt.Sprint(int64(score)))
			}
			return strings.Join(ids, " ")
		}
		accept := func(at waitdb.Decision) {
			t.Helper()
			s.wait(time.Millisecond)
			must(t, s.lanes.Accepted(t.Context(), at.At, 0, need))
		}
		for _, rest := range []string{"", "-"} {
			s.restart(t)
			define(t, s, throttle.Limit{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)})
			a, b := acquire("a"), acquire("b")
			first := refuse("a", a, waitdb.RateLimit{})
			acquire("c")
			acquire("d")
			expect(t, "a alone is refused", order(), "c d a")
			if rest == "" {
				refuse("b", b, waitdb.RateLimit{})
				expect(t, "b is refused, too", order(), "c a b d")
				continue
			}
			// b was allowed before a was refused, so it shows nothing.
			accept(b)
			expect(t, "an earlier call was served", order(), "c d a")
			s.wait(time.Minute)
			later := waitdb.Decision{Decision: throttle.Decision{At: s.now}}
			accept(later)
			acquire("e")
			expect(t, "a later call was served", order(), "c d a e")
			_, err := s.lanes.Forget(t.Context(), job("a").JobID)
			must(t, err)
			d := refuse("a", later, waitdb.RateLimit{Before: first.At})
			if !d.Alone || d.Fails || order() != "c d e a" {
				t.Errorf("refused again: %+v, order %s", d, order())
			}
			_, err = s.lanes.Forget(t.Context(), job("a").JobID)
			must(t, err)
			d = refuse("a", later, waitdb.RateLimit{Before: d.At, Alone: true, MayFail: true})
			if !d.Alone || !d.Fails || order() != "c d e" {
				t.Errorf("refused once more: %+v, order %s", d, order())
			}
		}
	})
}

// What is known of a refusal lasts longer than the block, however long that is. If an operator resets the
// key, or nothing is heard of it for an hour after the block, the job that alone was refused waits as any
// other.
func TestRateLimited_LongBlock(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		for name, row := range map[string]struct {
			block, after time.Duration
			end          func(need throttle.Need) error
			own          bool // whether another refusal is the job's own
		}{
			"two hours":        {block: 2 * time.Hour, own: true},
			"a week":           {block: throttle.Week, own: true},
			"a week, repeated": {block: throttle.Week, own: true},
			"reset":            {block: 2 * time.Hour, end: func(need throttle.Need) error { return s.Reset(t.Context(), need.Limit, need.Key) }},
			"long silence":     {block: time.Second, after: 2 * time.Hour},
		} {
			s.restart(t)
			define(t, s, throttle.Limit{Name: "host", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10), MaxBlock: throttle.Week})
			need := throttle.Need{Limit: "host", Key: "k"}
			job := func(id string) waitdb.Job { return waitdb.Job{JobID: throttle.JobID{Queue: "q", ID: id}} }
			acquire := func(id string) waitdb.Decision {
				s.wait(time.Millisecond)
				d, err := s.lanes.Acquire(t.Context(), job(id), need)
				must(t, err)
				return d
			}
			at := acquire("it")
			refusal := waitdb.RateLimit{At: at.At, For: row.block, Blocks: []throttle.Need{need}}
			if name == "a week, repeated" {
				refusal.For = time.Second
				_, err := s.lanes.RateLimited(t.Context(), job("other"), refusal, need)
				must(t, err)
				refusal.For = row.block
				_, err = s.lanes.Forget(t.Context(), job("other").JobID)
				must(t, err)
				must(t, s.rdb.Del(t.Context(), "hg:{default}:refused:host|k").Err())
			}
			first, err := s.lanes.RateLimited(t.Context(), job("it"), refusal, need)
			must(t, err)
			acquire("waits")
			if ttl := s.rdb.PTTL(t.Context(), "hg:{default}:refused:host|k").Val(); ttl >= 0 && ttl < row.block+throttle.Day/2 { // a redis-server of these tests expires no key
				t.Errorf("%s: the key lasts %s, want longer than the block", name, ttl)
			}
			s.wait(row.block + row.after)
			if row.end != nil {
				must(t, row.end(need))
			}
			must(t, s.lanes.Accepted(t.Context(), s.now, 0, need))
			acquire("later")
			ids, err := s.rdb.ZRange(t.Context(), "hg:{default}:lane:q\nhost|k", 0, -1).Result()
			must(t, err)
			expect(t, name+": order", strings.Join(ids, " "), "waits it later")
			_, err = s.lanes.Forget(t.Context(), job("it").JobID)
			must(t, err)
			refusal.At, refusal.Before = s.now, first.At
			again, err := s.lanes.RateLimited(t.Context(), job("it"), refusal, need)
			must(t, err)
			expect(t, name+": refused for a reason of its own", again.Alone, row.own)
		}
	})
}

package waitdb_test

import (
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

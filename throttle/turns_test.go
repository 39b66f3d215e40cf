package throttle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/turns"
	"github.com/headgate/headgate/throttle"
)

var bg = context.Background()

func TestSmoke(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		if err := s.Define(bg, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(10), Capacity: 2}, throttle.Limit{Name: "h", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)}); err != nil {
			t.Fatal(err)
		}
		store := s.lanes.Turns()
		for i := range 6 {
			d, err := s.lanes.Acquire(bg, throttle.Job{JobID: throttle.JobID{Queue: "q", ID: fmt.Sprint(i)}}, throttle.Need{Limit: "l"})
			t.Log(d, d.RetryAfter, d.PutBack, err)
		}
		d, err := s.lanes.Acquire(bg, throttle.Job{JobID: throttle.JobID{Queue: "q", ID: "x"}, MaxWait: time.Second}, throttle.Need{Limit: "l"}, throttle.Need{Limit: "h", Key: "k"})
		t.Log(d, d.RetryAfter, d.PutBack, err)
		l, err := store.Lead(bg, "me", 0, "epoch")
		t.Logf("%+v %v", l, err)
		s.wait(100 * time.Millisecond)
		now, res, held, err := store.Grant(bg, "me", []turns.Turn{{Lane: "q\nl|", Ahead: true, Held: []int64{0}}, {Lane: "q\nl|", Ahead: true, Held: []int64{0}}, {Lane: "q\nh|k\nl|", Held: []int64{0, 0}}})
		t.Logf("%d %+v %t %v", now, res, held, err)
		for _, k := range s.rdb.Keys(bg, "hg:*").Val() {
			switch s.rdb.Type(bg, k).Val() {
			case "hash":
				t.Logf("%q %q", k, s.rdb.HGetAll(bg, k).Val())
			case "zset":
				t.Logf("%q %v", k, s.rdb.ZRangeWithScores(bg, k, 0, -1).Val())
			default:
				t.Logf("%q %v", k, s.rdb.Get(bg, k).Val())
			}
		}
		r, err := store.Recall(bg, []string{"q\nl|"})
		t.Log(r, err)
		d, err = s.lanes.Acquire(bg, throttle.Job{JobID: throttle.JobID{Queue: "q", ID: "2"}}, throttle.Need{Limit: "l"})
		t.Log(d, err)
		p, ok, err := s.lanes.Waiting(bg, throttle.JobID{Queue: "q", ID: "4"})
		t.Log(p, ok, err)
		t.Log(store.Settle(bg, "me", 100, map[string]int{"l|": 0, "h|k": 2}), s.lanes.Forget(bg, throttle.JobID{Queue: "q", ID: "4"}, throttle.JobID{Queue: "q", ID: "3"}))
		for _, k := range s.rdb.Keys(bg, "hg:*").Val() {
			t.Log(k)
		}
	})
}

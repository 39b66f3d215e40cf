package waitdb_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// TestNotifications_Changes: whatever makes permits, the leader is notified at once,
// also where nothing is due till later; and sees that there was a notification if it got
// lost.
func TestNotifications_Changes(t *testing.T) {
	funnel := throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 2}
	onRedis(t, func(t *testing.T, s *fixture) {
		for name, tt := range map[string]struct {
			before, change func() error
			notification   waitdb.Notification
		}{
			"raise":        {nil, func() error { return s.Set(background, perMinute("l", 2)) }, waitdb.Notification{Kind: waitdb.LimitChanged, Name: "l"}},
			"another kind": {nil, func() error { return s.Set(background, funnel) }, waitdb.Notification{Kind: waitdb.LimitChanged, Name: "l"}},
			"reset":        {nil, func() error { return s.Reset(background, "l", "k") }, waitdb.Notification{Kind: waitdb.MeterChanged, Name: "l|k"}},
			"resume": {
				func() error { s.wait(time.Hour); return s.Pause(background, "l") },
				func() error { return s.Resume(background, "l") },
				waitdb.Notification{Kind: waitdb.LimitChanged, Name: "l"},
			},
			"unblock": {
				func() error { s.wait(time.Minute); return s.Block(background, "l", "k", s.now.Add(time.Hour)) },
				func() error { return s.Block(background, "l", "k", s.now) },
				waitdb.Notification{Kind: waitdb.MeterChanged, Name: "l|k"},
			},
		} {
			t.Run(name, func(t *testing.T) {
				s.restart(t)
				define(t, s, perMinute("l", 1))
				s.acquire(t, "a", one("l"))
				s.acquire(t, "b", one("l"))
				if tt.before != nil {
					must(t, tt.before())
				}
				granted, next := s.pump(t)
				expect(t, "granted before the change", granted, nil)
				if next <= 0 {
					t.Errorf("turns are due in %s", next)
				}
				notifications := s.lanes.Notifications(t.Context())
				expect(t, "the first notification", <-notifications, waitdb.Notification{Kind: waitdb.Reconnected})
				must(t, tt.change())
				notification := <-notifications
				tt.notification.Number = s.dispatcher.changes + 1
				expect(t, "notification", notification, tt.notification)
				expect(t, "granted after it", s.pumped(t), []string{"b"})
				s.wantTaken(t, []string{"b"}, one("l"))
			})
		}
	})
}

// TestNotifications_LanesAndJobs: a lane's first job is news, and a granted job that arrives
// to a lane that was refused more turns, or that arrives late.
func TestNotifications_LanesAndJobs(t *testing.T) {
	onRedis(t, func(t *testing.T, s *fixture) {
		limit := throttle.Limit{Name: "c", Kind: throttle.Concurrency, Capacity: 1}
		define(t, s, limit)
		a := s.acquire(t, "a", one("c"))
		notifications := s.lanes.Notifications(t.Context())
		received := func() waitdb.Notification {
			notification := <-notifications
			for notification.Kind == "silence" {
				notification = <-notifications
			}
			return notification
		}
		expect(t, "the first notification", received(), waitdb.Notification{Kind: waitdb.Reconnected})
		s.acquire(t, "b", one("c"))
		expect(t, "notification", received(), waitdb.Notification{Kind: waitdb.LaneAdded, Number: 1})
		for _, job := range []string{"c", "d"} {
			s.acquire(t, job, one("c"))
		}
		must(t, s.lanes.Free(background, a.Holder, one("c")))
		expect(t, "notification", received().Kind, waitdb.MeterChanged)
		expect(t, "granted", s.pumped(t), []string{"b"})
		limit.Lease = time.Minute
		must(t, s.Set(background, limit))
		expect(t, "notification", received().Kind, waitdb.LimitChanged)
		expect(t, "granted while b has not arrived", s.pumped(t), nil)
		b := s.acquire(t, "b", one("c"))
		expect(t, "notification", received(), waitdb.Notification{Kind: waitdb.JobArrived, Name: "default\nc|k"})

		must(t, s.lanes.Free(background, b.Holder, one("c")))
		expect(t, "notification", received().Kind, waitdb.MeterChanged)
		expect(t, "granted", s.pumped(t), []string{"c"})
		s.wait(grant)
		s.pump(t)
		expect(t, "notification", received().Kind, waitdb.MeterChanged)
		s.acquire(t, "c", one("c"))
		expect(t, "notification", received(), waitdb.Notification{Kind: waitdb.JobArrived, Number: 1, Name: "default\nc|k"})

		late := throttle.Limit{Name: "late", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 1}
		define(t, s, late)
		for _, job := range []string{"1", "2", "3"} {
			s.acquire(t, job, one("late"))
		}
		expect(t, "notification", received().Kind, waitdb.LimitChanged)
		expect(t, "notification", received().Kind, waitdb.LaneAdded)
		s.wait(time.Second)
		expect(t, "granted", s.pumped(t), []string{"2"})
		s.wait(30 * time.Millisecond)
		s.acquire(t, "2", one("late")) // in time
		s.wait(time.Second)
		expect(t, "granted", s.pumped(t), []string{"3"})
		s.wait(50 * time.Millisecond)
		expect(t, "late", s.acquire(t, "3", one("late")).Outcome, allowed)
		expect(t, "notification", received(), waitdb.Notification{Kind: waitdb.JobArrived, Number: 1, Name: "default\nlate|k"})
	})
}

package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
)

// A dispatcher sleeps although no more notifications arrive, as with a closed client.
func TestDispatcher_SleepsWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notifications := make(chan waitdb.Notification)
		close(notifications)
		began := time.Now()
		new(dispatcher).sleep(t.Context(), notifications, began.Add(roundInterval), began.Add(time.Minute))
		if slept := time.Since(began); slept != time.Minute {
			t.Errorf("slept %s, want a minute", slept)
		}
	})
}

// A process that holds the lease and could not read the lanes yet steps down. It does not take the
// lease again at its own notification, and others do.
func TestDispatcher_StepsDownWithoutCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		d := newReconciler(rdb)
		d.process, d.core = "one", nil
		other := dispatcher{process: "two", mustWaitUntil: time.Now().Add(time.Minute), renewAt: time.Now().Add(time.Minute)}
		notifications := d.Waits.Notifications(t.Context())
		<-notifications // that it has subscribed
		if lead, err := d.Waits.BecomeLeader(t.Context(), d.process, time.Minute, 0, ""); err != nil || !lead.Held {
			t.Fatalf("%+v, %v; want the lease", lead, err)
		}
		d.stepDown(t.Context(), "")
		if lead, err := d.Waits.BecomeLeader(t.Context(), other.process, time.Minute, 0, ""); err != nil || !lead.Held {
			t.Errorf("%+v, %v; want that another process gets the lease", lead, err)
		}
		var n waitdb.Notification
		select {
		case n = <-notifications:
		case <-time.After(time.Second):
		}
		if !other.handle(t.Context(), n) || other.renewAt.After(time.Now()) {
			t.Errorf("received %+v, and takes the lease at %s; want at once", n, other.renewAt)
		}
		if d.handle(t.Context(), n) {
			t.Errorf("a process that has stepped down takes the lease again")
		}
	})
}

// If the answer to a renewal comes when the lease may have ended, the leader renews it again at once.
// Until then it calls nothing else, also if turns are due, and does not spin.
func TestDispatcher_LateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		d := newReconciler(rdb)
		d.process, d.core = "one", nil
		d.MaxHeartbeat = heartbeat
		isLate, renewals := false, 0
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" && args[1] == script.New("lanes/become_leader").Hash() && err == nil {
				renewals++
				if isLate {
					time.Sleep(takeoverLease + time.Millisecond)
				}
			}
			return err
		}))
		for range 2 { // the first call loads the script
			if err := d.renewLease(t.Context()); err != nil {
				t.Fatal(err)
			}
			isLate = true
		}
		if d.leads(0) {
			t.Fatal("leads with a lease that may have ended")
		}
		d.core.AddLane("default\napi|", 1) // a turn is due
		isLate, renewals = false, 0
		next := d.round(t.Context())
		if renewals != 1 || !d.leads(0) || next.After(d.leaseEnd) {
			t.Errorf("%d renewals, next round in %s; want one renewal at once", renewals, time.Until(next))
		}
		time.Sleep(time.Until(d.leaseEnd) + time.Millisecond)
		d.renewAt = time.Now().Add(ErrorPause) // as after a renewal that failed
		if next := d.next(); next.After(time.Now()) {
			t.Errorf("without a lease the next round is in %s, want at once", time.Until(next))
		}
		began := time.Now()
		if err := d.work(t.Context()); err != nil || time.Since(began) > 0 { // a loop without a call would never end here
			t.Errorf("worked for %s, %v", time.Since(began), err)
		}
	})
}

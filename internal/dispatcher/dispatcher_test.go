package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

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

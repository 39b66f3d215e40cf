package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
)

// Where no more words come, as with a closed client, there is a sleep all the same.
func TestSleepWithoutWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := make(chan waitdb.Notification)
		close(words)
		began := time.Now()
		new(dispatcher).sleep(t.Context(), words, began.Add(interval), began.Add(time.Minute))
		if slept := time.Since(began); slept != time.Minute {
			t.Errorf("slept %s, want a minute", slept)
		}
	})
}

// A process steps down that holds the lease and could not read the lanes yet. It does not take
// the lease again when it hears itself, and others do.
func TestStepsDownWithoutCore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		d := tender(rdb)
		d.process, d.core = "one", nil
		other := dispatcher{process: "two", taken: time.Now().Add(time.Minute), lead: time.Now().Add(time.Minute)}
		words := d.Waits.Notifications(t.Context())
		<-words // that it listens
		if lead, err := d.Waits.BecomeLeader(t.Context(), d.process, time.Minute, 0, ""); err != nil || !lead.Held {
			t.Fatalf("%+v, %v; want the lease", lead, err)
		}
		d.resign(t.Context())
		if lead, err := d.Waits.BecomeLeader(t.Context(), other.process, time.Minute, 0, ""); err != nil || !lead.Held {
			t.Errorf("%+v, %v; want that another process gets the lease", lead, err)
		}
		var word waitdb.Notification
		select {
		case word = <-words:
		case <-time.After(time.Second):
		}
		if !other.hear(word) || other.lead.After(time.Now()) {
			t.Errorf("heard %+v, and takes the lease at %s; want at once", word, other.lead)
		}
		if d.hear(word) {
			t.Errorf("a process that has stepped down takes the lease again")
		}
	})
}

package scheduler

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/asynqdb"
)

// noSubscription is what asynq's server gets in place of its subscription to cancellations. asynq
// cannot end that subscription while Redis hangs, and panics if the program closes the client
// meanwhile. The server subscribes itself: see cancelJobs.
var noSubscription = func() *redis.Client {
	closed := redis.NewClient(&redis.Options{MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	_ = closed.Close()
	return closed
}()

// subscribeError is how the line begins that asynq logs every five seconds without a subscription.
const subscribeError = "cannot subscribe to cancelation channel"

// cancelJobs cancels the contexts of running jobs that an operator cancels, until s.cancels ends. The
// client connects again after each error.
func (s *Server) cancelJobs() {
	subscription := s.redis.UniversalClient.Subscribe(s.cancels, asynqdb.CancelChannel)
	defer func() { go subscription.Close() }() // Close waits for a connection that is being made
	for messages := subscription.Channel(); ; {
		select {
		case <-s.cancels.Done():
			return
		case m, ok := <-messages:
			if !ok { // the program has closed the client
				return
			}
			s.running.cancel(m.Payload)
		}
	}
}

// runningJobs has the contexts of the running jobs by the jobs' IDs, as asynq has. It is safe for
// concurrent use.
type runningJobs struct {
	mu   sync.Mutex
	byID map[string]map[*runContext]struct{}
}

// add adds the context of a job. The function remove removes it.
func (r *runningJobs) add(id string, run *runContext) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = map[string]map[*runContext]struct{}{}
	}
	if r.byID[id] == nil {
		r.byID[id] = map[*runContext]struct{}{}
	}
	r.byID[id][run] = struct{}{}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if delete(r.byID[id], run); len(r.byID[id]) == 0 {
			delete(r.byID, id)
		}
	}
}

func (r *runningJobs) cancel(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for run := range r.byID[id] {
		run.end(context.Canceled)
	}
}

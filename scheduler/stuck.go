package scheduler

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/stats"
)

// stuckAfter is how long a handler may go on after the end of its context without a warning.
const stuckAfter = 10 * time.Second

// watchEnd warns if the handler has not returned stuckAfter after ctx, its context, has ended. The
// caller must call returned when the handler has returned.
func (a *attempt) watchEnd(ctx context.Context) (returned func()) {
	hasReturned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		ended := time.Now()
		select {
		case <-hasReturned:
			return
		case <-time.After(stuckAfter):
		}
		a.scope.log.Warn("a handler has not returned after the end of its context: it keeps its slots of concurrency limits until then",
			"type", a.task.Type(), "job", a.ID, "queue", a.Queue, "why", context.Cause(ctx))
		forget := a.scope.stats.NoteStuck(stats.StuckJob{Type: a.task.Type(), Queue: a.Queue, ID: a.ID, Ended: ended})
		<-hasReturned
		forget()
	})
	return sync.OnceFunc(func() {
		stop()
		close(hasReturned)
	})
}

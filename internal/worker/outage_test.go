package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/scheduler"
)

// Calls that hung in an outage complain after its end, and asynq does not say since when
// they hung. What is news is told all the same.
func TestComplaintsThatOutlastAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		down := errors.New("no Redis")
		o := &outageLog{Handler: slog.NewTextHandler(&said, nil), ready: func(context.Context) error { return down }}
		log := slog.New(o)
		began := slog.NewRecord(time.Now(), slog.LevelError, "the limiter is unavailable; jobs wait", 0)
		time.Sleep(time.Second)
		asynqLog{log}.Error("Dequeue error: first")
		down = nil
		time.Sleep(time.Second)
		o.check(nil)
		if err := o.Handle(scheduler.WithOutage(t.Context(), scheduler.OutageBegins), began); err != nil {
			t.Error(err)
		}
		asynqLog{log}.Error("Dequeue error: in it")
		time.Sleep(500 * time.Millisecond)
		asynqLog{log}.Warn("Dequeue error: of it")
		log.InfoContext(scheduler.WithOutage(t.Context(), scheduler.OutageEnds), "the limiter is available again; jobs go on")
		log.Warn("what waited is lost")
		time.Sleep(500 * time.Millisecond)
		asynqLog{log}.Error("Dequeue error: another")
		var lines []string
		for line := range strings.Lines(said.String()) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), " msg=")
			lines = append(lines, message)
		}
		want := []string{`"Redis cannot be used: jobs wait" why="it does not answer" error="no Redis"`, `"Redis is back: jobs go on"`, `"what waited is lost"`, `"Dequeue error: another"`}
		if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
			t.Errorf("said:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
		}
	})
}

package redishealth

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestOutagesOfOneMoment: calls that began at the same moment as the change of state are ignored,
// because they may have begun before it.
func TestOutagesOfOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		o := New(slog.New(slog.NewTextHandler(&log, nil)), "Redis", nil)
		time.Sleep(time.Second)
		for range 2 {
			o.Note(t.Context(), time.Now(), io.EOF)
			o.Note(t.Context(), time.Now(), nil)
		}
		time.Sleep(time.Second)
		o.Note(t.Context(), time.Now(), nil)
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("logged\n%swant one outage", log.String())
		}
	})
}

// TestQuietDropsComplaints: calls that hang in an outage log errors after its end, without the time
// at which they began. These lines are dropped, and other lines are not.
func TestQuietDropsComplaints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := redistest.Mini(t)
		var said bytes.Buffer
		quiet := &OutageFilter{Handler: slog.NewTextHandler(&said, nil)}
		log := slog.New(quiet)
		m := New(log, "Redis", rdb, "place:")
		quiet.Monitors = []*Monitor{m}
		ofAsynq := MayBeLate(t.Context())
		down := errors.New("no Redis")
		rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if down != nil {
				return down
			}
			return next(ctx, cmd)
		}))
		time.Sleep(time.Second)
		m.Note(t.Context(), time.Now(), down)
		log.ErrorContext(ofAsynq, "Dequeue error: first")
		time.Sleep(time.Second)
		log.ErrorContext(ofAsynq, "Dequeue error: in it")
		m.Note(t.Context(), time.Now(), down)
		began := slog.NewRecord(time.Now(), slog.LevelError, "a complaint of the outage", 0)
		down = nil
		time.Sleep(time.Second)
		m.Note(t.Context(), time.Now(), nil)
		if err := quiet.Handle(t.Context(), began); err != nil {
			t.Error(err)
		}
		time.Sleep(500 * time.Millisecond)
		log.WarnContext(ofAsynq, "Dequeue error: of it")
		log.Warn("what waited is lost")
		time.Sleep(500 * time.Millisecond)
		log.WarnContext(ofAsynq, "Dequeue error: another")
		var lines []string
		for line := range strings.Lines(said.String()) {
			_, message, _ := strings.Cut(strings.TrimSpace(line), " msg=")
			lines = append(lines, message)
		}
		want := strings.Join([]string{
			`"Redis cannot be used: jobs wait" why="it does not answer" error="no Redis"`,
			`"Redis is back: jobs go on" after=2s failed_calls=2`, `"what waited is lost"`, `"Dequeue error: another"`,
		}, "\n")
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("said:\n%s\nwant:\n%s", got, want)
		}
	})
}

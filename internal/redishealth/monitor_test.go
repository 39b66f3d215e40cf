package redishealth

import (
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
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

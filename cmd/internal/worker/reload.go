package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/throttle"
)

const readInterval = 250 * time.Millisecond

// watch reloads the config on SIGHUP, and when the file has changed. It waits until two reads in a
// row return the same text, because editors write in several steps.
func (w *Worker) watch(ctx context.Context) {
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	for before := w.options.Text; ; {
		hangup := false
		select {
		case <-ctx.Done():
			return
		case <-w.hangup:
			hangup = true
		case <-ticker.C:
		}
		text, _ := os.ReadFile(w.options.File)
		if hangup || bytes.Equal(text, before) && !bytes.Equal(text, w.options.Text) {
			w.options.Text = text
			w.fileNotApplied.Store(w.reload(ctx) != nil)
		}
		before = text
	}
}

// reload applies the limits, rules and schedules of the config file. It returns an error and changes
// nothing if the file has errors, is missing or is empty. An accident must not lift all limits.
func (w *Worker) reload(ctx context.Context) error {
	next, err := w.options.Load()
	if err == nil && next.DefaultReason != "" {
		err = errors.New(next.DefaultReason)
	}
	message := "the config is unchanged"
	if err == nil && !reflect.DeepEqual(w.config.Load().Sharded, next.Sharded) {
		err = errors.New("the shards of a queue, or the limits that its jobs use, have changed: restart the workers")
	}
	if err == nil {
		// The change is not by the user who has started the worker.
		message = "the config is unchanged, but limits may have changed already: change the file again or send SIGHUP to retry"
		err = w.server.Define(throttle.WithActor(ctx, ""), next.Limits...)
	}
	if err == nil {
		err = w.cron.Set(next.Schedules.Entries())
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			w.log.Error(message, "error", line)
		}
		return err
	}
	old := w.config.Swap(next)
	w.publishChecksum()
	w.server.RulesChanged()
	w.log.Info("the config is loaded", "limits", len(next.Limits), "tasks", len(next.Tasks), "schedules", len(next.Schedules))
	if fields := w.startConfig.NeedsRestart(next); len(fields) > 0 {
		w.log.Warn("a restart is needed for some changes", "fields", strings.Join(fields, ", "))
	}
	w.logRemoved(old, next)
	return nil
}

// publishChecksum publishes a checksum of the config file. It shows which workers have another file.
func (w *Worker) publishChecksum() {
	if w.options.File == "" || w.config.Load().DefaultReason != "" {
		return
	}
	sum := sha256.Sum256(w.options.Text)
	for _, recorder := range stats.RecordersOf(w.server) {
		recorder.SetConfig(fmt.Sprintf("%s %x", filepath.Base(w.options.File), sum[:4]))
	}
}

// logRemoved warns about limits that are no longer in the config file, because Redis keeps them.
func (w *Worker) logRemoved(old, next *config.Config) {
	for _, l := range old.Limits {
		if !slices.ContainsFunc(next.Limits, func(n throttle.Limit) bool { return n.Name == l.Name }) {
			w.log.Warn("a limit is no longer in the config file, but still in Redis", "remove it with", cli.Worker+" limits delete "+l.Name)
		}
	}
}

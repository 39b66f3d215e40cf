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

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/tasks"
	"github.com/headgate/headgate/throttle"
)

// readInterval is the time between two reads of the config file. Events of the file system would miss
// changes of links, of folders and on network file systems.
const readInterval = 250 * time.Millisecond

// watch reloads the config on SIGHUP. It also reloads a changed file when two reads in a row agree,
// because editors write in several steps. A missing file is like an empty one.
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

// reload applies the config file's limits, rules and schedules, or returns why it did not. A file
// with errors, a missing file and an empty file change nothing, because otherwise an accident would
// lift all limits.
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
		// From here on only Redis can fail, perhaps between two limits.
		message = "the config is unchanged, but limits may have changed already: change the file again or send SIGHUP to retry"
		err = w.server.Define(ctx, next.Limits...)
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
	if text := crawlWarning(next); text != "" {
		w.log.Warn(text)
	}
	if fields := w.started.NeedsRestart(next); len(fields) > 0 {
		w.log.Warn("a restart is needed for some changes", "fields", strings.Join(fields, ", "))
	}
	w.logRemoved(old, next)
	return nil
}

// describe publishes a checksum of the config, so that workers with different configs can be found.
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
			w.log.Warn("a limit is no longer in the config file, but still in Redis", "remove it with", "worker limits delete "+l.Name)
		}
	}
}

// impoliteWarning warns of crawls without a limit for each host. It is empty if crawl:fetch has
// such a limit, or is not in the config.
func crawlWarning(c *config.Config) string {
	task, crawls := c.Tasks[tasks.TypeCrawlFetch]
	if !crawls || slices.ContainsFunc(task.Limits, func(n config.Need) bool { return n.Key.ByHost() }) {
		return ""
	}
	return "crawls request pages of a host as fast as jobs run: give crawl:fetch a limit with key: host(payload.url)"
}

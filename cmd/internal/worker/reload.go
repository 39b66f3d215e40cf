package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
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

const (
	// lookEach is how often the config file is read. Every look follows the path anew, so a change
	// of a link, a folder or a network file system counts as well, and no other file does.
	lookEach = 500 * time.Millisecond
	// quietFor is how long the file must stay the same before it counts: editors write in several steps.
	quietFor = 100 * time.Millisecond
	// quietWithin bounds the wait for a file that changes all the time.
	quietWithin = 500 * time.Millisecond
)

// watch reloads the config on SIGHUP, and when its file has another text.
func (w *Worker) watch(ctx context.Context) {
	look := time.NewTicker(lookEach)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.hangup:
			w.options.Text, _ = os.ReadFile(w.options.File)
			w.reload(ctx)
		case <-look.C:
			if text := settledText(w.options.File, w.options.Text); !bytes.Equal(text, w.options.Text) {
				w.options.Text = text
				w.reload(ctx)
			}
		}
	}
}

// settledText reads a file whose text was known so far. If the text is another one, it reads until
// two reads agree. A missing file is like an empty one.
func settledText(path string, known []byte) []byte {
	text, _ := os.ReadFile(path)
	for end := time.Now().Add(quietWithin); !bytes.Equal(text, known) && time.Now().Before(end); {
		known = text
		time.Sleep(quietFor)
		text, _ = os.ReadFile(path)
	}
	return text
}

// reload makes the config file's limits, rules and schedules current. A file
// with errors changes nothing, and neither does one that is gone or empty:
// taken at its word, it would lift every limit.
func (w *Worker) reload(ctx context.Context) { w.health.reloaded(w.readAgain(ctx)) }

// readAgain returns what is wrong, if the config did not become current.
func (w *Worker) readAgain(ctx context.Context) error {
	next, err := w.options.Load()
	if err == nil && next.Absent != "" {
		err = errors.New(next.Absent)
	}
	stays := "the config stays as it was"
	if err == nil {
		// From here on only Redis can fail, between two limits, too.
		stays = "the config stays as it was, but limits may have changed already: it is read again with the next change of the file, or SIGHUP"
		err = w.server.Define(ctx, next.Limits...)
	}
	if err == nil {
		err = w.cron.Set(next.Schedules.Entries())
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			w.log.Error(stays, "error", line)
		}
		return err
	}
	old := w.config.Swap(next)
	w.describe()
	w.server.RulesChanged()
	w.log.Info("the config is current", "limits", len(next.Limits), "tasks", len(next.Tasks), "schedules", len(next.Schedules))
	w.warnImpolite(next)
	if fields := needRestart(w.started, next); len(fields) > 0 {
		w.log.Warn("a restart is needed for some changes", "fields", strings.Join(fields, ", "))
	}
	w.logLeft(ctx, old, next)
	return nil
}

// describe tells the scope by which config this worker goes: two workers that have read
// the same have the same sum.
func (w *Worker) describe() {
	if w.options.File == "" || w.config.Load().Absent != "" {
		return
	}
	sum := sha256.Sum256(w.options.Text)
	stats.RecorderOf(w.server).SetConfig(fmt.Sprintf("%s %x", filepath.Base(w.options.File), sum[:4]))
}

// needRestart lists the fields of the config in which the one that the worker started with and the
// next differ, and which a running worker cannot change.
func needRestart(old, next *config.Config) (fields []string) {
	was, is := reflect.ValueOf(*old), reflect.ValueOf(*next)
	for i := range was.NumField() {
		name, same := was.Type().Field(i).Tag.Get("yaml"), false
		switch name {
		case "", "tasks", "schedules":
			same = true
		case "commands": // compiled expressions cannot be compared, their texts can
			same = maps.EqualFunc(old.Commands, next.Commands, func(a, b config.Command) bool {
				same := fmt.Sprintf("%q", a.Run) == fmt.Sprintf("%q", b.Run)
				a.Run, b.Run = nil, nil
				return same && reflect.DeepEqual(a, b)
			})
		default:
			same = reflect.DeepEqual(was.Field(i).Interface(), is.Field(i).Interface())
		}
		if !same {
			fields = append(fields, name)
		}
	}
	return fields
}

// limitsNow are those in Redis, by name. Where they cannot be had that is logged.
func (w *Worker) limitsNow(ctx context.Context) (now map[string]throttle.Limit, ok bool) {
	limits, err := w.limiter.Limits(ctx)
	if err != nil {
		w.log.Warn("could not compare the limits with the config file", "error", err)
		return nil, false
	}
	now = map[string]throttle.Limit{}
	for _, l := range limits {
		now[l.Name] = l
	}
	return now, true
}

// logLeft says which of the limits that left the config file are still in Redis.
func (w *Worker) logLeft(ctx context.Context, old, next *config.Config) {
	left := slices.DeleteFunc(slices.Clone(old.Limits), func(l throttle.Limit) bool {
		return slices.ContainsFunc(next.Limits, func(n throttle.Limit) bool { return n.Name == l.Name })
	})
	if len(left) == 0 {
		return
	}
	now, _ := w.limitsNow(ctx)
	for _, l := range left {
		if _, there := now[l.Name]; there {
			w.log.Warn("a limit left the file but is still in Redis", "remove it with", "worker limits delete "+l.Name)
		}
	}
}

func (w *Worker) warnImpolite(c *config.Config) {
	if text := impoliteWarning(c); text != "" {
		w.log.Warn(text)
	}
}

// impoliteWarning is about crawls that no limit keeps from asking a host as fast as jobs run. It
// is empty if there is such a limit, or no task crawl:fetch.
func impoliteWarning(c *config.Config) string {
	task, crawls := c.Tasks[tasks.TypeCrawlFetch]
	if !crawls || slices.ContainsFunc(task.Limits, func(n config.Need) bool { return n.Key.ByHost() }) {
		return ""
	}
	return "crawls ask a host for its pages as fast as jobs run: give crawl:fetch a limit with key: host(payload.url)"
}

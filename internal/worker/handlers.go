package worker

import (
	"errors"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/tasks"
)

type handlers struct {
	calls    *tasks.HTTPHandler
	crawls   *tasks.CrawlHandler
	commands *tasks.ExecHandler
}

// newHandlers are those of a config. The error says what of the files that it
// names cannot be used.
func newHandlers(c *config.Config) (h handlers, err error) {
	if h.calls, err = c.HTTP.Handler(); err != nil {
		return h, err
	}
	if h.crawls, err = c.Crawl.Handler(h.calls); err != nil {
		return h, err
	}
	h.crawls.Urgent = []asynq.Option{scheduler.Priority(lanes.High)}
	h.commands, err = c.ExecHandler()
	return h, err
}

// tidy finishes or removes the files that workers have left which were killed.
func (h handlers) tidy() error {
	err := h.calls.Tidy()
	if h.crawls.Archive != nil {
		err = errors.Join(err, h.crawls.Archive.Recover())
	}
	return err
}

// close ends what jobs that outlived the shutdown have left running, and
// finishes the archives.
func (h handlers) close() error {
	h.commands.Close()
	if h.crawls.Archive == nil {
		return nil
	}
	return h.crawls.Archive.Close()
}

package worker

import (
	"cmp"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/config"
)

func (w *Worker) newPage(p config.Page) (*page.Page, error) {
	c := w.config.Load()
	return page.New(page.Options{
		Redis: w.store, Limiter: w.limiter, Scope: c.Scope, Schedules: w.cron, Log: w.log,
		KeyOf: func(limit string) (string, bool) { return keyOf(w.config.Load(), limit) },
		Token: string(p.Token), User: p.User, Password: string(p.Password), HTTPS: p.HTTPS,
		ReadOnly: p.ReadOnly, Redact: p.Redact,
	})
}

func keyOf(c *config.Config, limit string) (by string, known bool) {
	for _, task := range c.Tasks {
		for _, n := range task.Limits {
			if n.Limit == limit {
				by, known = cmp.Or(n.Key.String(), by), true
			}
		}
	}
	return by, known
}

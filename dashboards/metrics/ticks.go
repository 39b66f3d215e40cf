package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/scheduler/cron"
)

// What Redis says of schedules. Ticks are counted in Redis since the schedule began, so
// they outlive processes; where Redis has lost them they begin anew, as counters may. A
// run of missed ticks that was dropped at once counts as one skipped.
var (
	ticks     = scoped(counter, "schedule_ticks_total", "Ticks of schedules by outcome: enqueued, skipped (missed, or the job of the one before was not done) or failed.", "schedule", "outcome")
	ticksLate = scoped(gauge, "schedule_late_seconds", "For how long a schedule's tick has been due that nobody has enqueued yet, 0 where none is.", "schedule")
)

// ticks tells of the first 200 schedules by name, of the rest together, as other, in one
// round trip. One that is named so is of the rest, too. Disabled and paused ones are told
// of, and are never late: nobody should be woken for what somebody has stopped.
func (c *Collector) ticks(ctx context.Context, out chan<- prometheus.Metric) error {
	if c.schedules == nil {
		return nil
	}
	// Without the ticks to come, which nothing here is made of.
	list, err := c.schedules.List(ctx, 0)
	if err != nil {
		return err
	}
	var rest *cron.Status
	for i, s := range list {
		if i < maxTicks && isLabel(s.Entry.Name) {
			tellTicks(s, out)
			continue
		}
		if rest == nil {
			rest = &cron.Status{Entry: cron.Entry{Name: history.Other}}
		}
		rest.Enqueued, rest.Skipped, rest.Failed = rest.Enqueued+s.Enqueued, rest.Skipped+s.Skipped, rest.Failed+s.Failed
		rest.Late = max(rest.Late, s.Late)
	}
	if rest != nil {
		tellTicks(*rest, out)
	}
	return nil
}

// tellTicks tells of one schedule, or of several that were added up, whose lateness is
// that of the latest. Each outcome is told, at 0 where no tick had it.
func tellTicks(s cron.Status, out chan<- prometheus.Metric) {
	out <- ticks.value(float64(s.Enqueued), s.Entry.Name, "enqueued")
	out <- ticks.value(float64(s.Skipped), s.Entry.Name, "skipped")
	out <- ticks.value(float64(s.Failed), s.Entry.Name, "failed")
	out <- ticksLate.value(s.Late.Seconds(), s.Entry.Name)
}

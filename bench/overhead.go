package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

type overheadCommand struct {
	Jobs        int  `default:"20000" help:"How many jobs each run drains."`
	Concurrency int  `default:"10" help:"Jobs that each worker runs at once."`
	Pairs       int  `default:"3" help:"Runs of each system, each beside one of bare asynq. The median is printed."`
	JSON        bool `name:"json" help:"Print one JSON array."`
}

type overheadRow struct {
	System  string  `json:"system" table:"system"`
	Limits  int     `json:"limits" table:"limits,0"`
	JobsPer float64 `json:"jobs_per_s" table:"jobs/s,0"`
	Ratio   float64 `json:"ratio_to_asynq" table:"ratio to asynq,2"`
}

// Run drains the same no-op jobs with every system, each time after bare asynq. The ratio is the
// median of the pairs, so that other load affects both.
func (c *overheadCommand) Run(b *bench) error {
	if c.Jobs < 1 || c.Concurrency < 1 || c.Pairs < 1 {
		return errors.New("--jobs, --concurrency, --pairs: want 1 or more")
	}
	rows := []overheadRow{{"asynq", 0, 0, 1}, {System: "headgate", Limits: 1}, {System: "headgate", Limits: 3}, {System: "headgate, ten fairness keys", Limits: 1}, {System: "redis_rate", Limits: 1}, {System: "redis_rate", Limits: 3}}
	starts := []starter{startBare, openHeadgate(1, 0), openHeadgate(3, 0), openHeadgate(1, 10), startRate(1), startRate(3)}
	var speeds, ratios [6][]float64
	for pair := range c.Pairs {
		for i, row := range rows[1:] {
			bare, err := c.drain(b, startBare)
			if err != nil {
				return fmt.Errorf("asynq: %w", err)
			}
			speed, err := c.drain(b, starts[i+1])
			if err != nil {
				return fmt.Errorf("%s: %w", row.System, err)
			}
			speeds[0] = append(speeds[0], bare)
			speeds[i+1] = append(speeds[i+1], speed)
			ratios[i+1] = append(ratios[i+1], speed/bare)
			b.note("overhead: pair %d of %d, %s with %d limits: %.0f jobs/s, asynq %.0f", pair+1, c.Pairs, row.System, row.Limits, speed, bare)
		}
	}
	for i := range rows {
		if rows[i].JobsPer = median(speeds[i]); i > 0 {
			rows[i].Ratio = median(ratios[i])
		}
	}
	return printRows(b, c.JSON, rows)
}

// drain returns the jobs a second of a server that starts when all jobs are queued.
func (c *overheadCommand) drain(b *bench, start starter) (float64, error) {
	out, err := drainer(start)(b, spec{Jobs: c.Jobs, Rate: roomy, Capacity: roomy, Concurrency: c.Concurrency})
	if err == nil && (out.denials > 0 || len(out.starts) < c.Jobs) {
		err = fmt.Errorf("%d of %d jobs ran, %d denials: no limit should deny here", len(out.starts), c.Jobs, out.denials)
	}
	if err != nil {
		return 0, err
	}
	return float64(c.Jobs) / elapsed(out).Seconds(), nil
}

// openHeadgate returns a starter of a headgate server with limits that never deny. The first jobs of
// the queue have one fairness key, the next ones another, and so on.
func openHeadgate(limits, keys int) starter {
	return func(b *bench, s spec, _ bool, h *history) (func(), error) {
		rules := scheduler.Rules{Limits: roomyLimits(limits)}
		var rule scheduler.Rule
		for _, limit := range rules.Limits {
			rule.Needs = append(rule.Needs, throttle.Need{Limit: limit.Name})
		}
		rules.RuleFor = func(_ context.Context, task *asynq.Task) (scheduler.Rule, error) {
			if keys == 0 {
				return rule, nil
			}
			rule := rule
			j, err := jobOf(task)
			rule.FairnessKey = strconv.Itoa(j.Number * keys / s.Jobs)
			return rule, err
		}
		return b.serve(s, rules, h)
	}
}

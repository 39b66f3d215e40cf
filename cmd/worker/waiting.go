package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/scheduler/lanes"
)

type waitingCommand struct {
	JSON bool `help:"Print a JSON array."`
}

func (waitingCommand) Help() string {
	return `LAST RUNS IN is when the last of the jobs would run that want permits of a limit, whatever else they wait for, if nothing else comes.

"worker limits show NAME" lists what waits for a limit by key, and "worker job ID" says where one job stands.`
}

type summary struct {
	Limit   string   `json:"limit"`
	Keys    int      `json:"keys"`
	Permits int      `json:"permits_wanted"`
	LastIn  *float64 `json:"last_in_s"`
	About   bool     `json:"about,omitempty"`
}

func (c *waitingCommand) Run(ctx context.Context, q *inspect.Queues, stdio cli.IO) error {
	wants, err := q.Limiter.Wants(ctx)
	if err != nil {
		return err
	}
	forecast, err := q.Forecast(ctx, lanes.ForecastOptions{})
	if err != nil {
		return err
	}
	lasts := forecast.Limits()
	found := summaries(wants, lasts)
	var rows [][]string
	for _, s := range found {
		rows = append(rows, []string{s.Limit, fmt.Sprint(s.Keys), fmt.Sprint(s.Permits), lastIn(lasts[s.Limit])})
	}
	return printList(stdio.Out, c.JSON, found, []string{"LIMIT", "KEYS", "PERMITS WANTED", "LAST RUNS IN"}, rows, "nothing waits for a permit")
}

func summaries(wants []lanes.Want, lasts map[string]lanes.Expected) []summary {
	found := []summary{}
	slices.SortFunc(wants, func(a, b lanes.Want) int { return strings.Compare(a.Limit, b.Limit) })
	for _, w := range wants {
		if len(found) == 0 || found[len(found)-1].Limit != w.Limit {
			last := lasts[w.Limit]
			found = append(found, summary{Limit: w.Limit, LastIn: lastSeconds(last), About: last.About})
		}
		s := &found[len(found)-1]
		s.Keys, s.Permits = s.Keys+1, s.Permits+w.Permits
	}
	return found
}

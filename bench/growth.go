package main

import (
	"fmt"
	"slices"
)

type growthCommand struct {
	Sizes       []int `default:"1000,10000,100000" help:"Backlogs to run, in jobs."`
	Rate        int   `default:"2000" help:"Permits a second."`
	Capacity    int   `default:"100" help:"Permits that can be taken at once."`
	Concurrency int   `default:"10" help:"Jobs that each worker runs at once."`
	Repeat      int   `default:"1" help:"Runs of each, in turns. Medians are printed, and what was over at its worst."`
	All         bool  `help:"Also run the wiki's pattern at sizes above 10,000, where it takes long."`
	Waiting     int   `default:"10000" help:"Jobs with which bytes per waiting job are measured; 0 leaves that out."`
	JSON        bool  `name:"json" help:"Print one JSON array."`
}

// maxWikiJobs is the largest backlog for the wiki's pattern.
const maxWikiJobs = 10000

// Run measures every size, with headgate and the wiki's pattern.
func (c *growthCommand) Run(b *bench) error {
	var rows []backlogRow
	for _, jobs := range slices.Sorted(slices.Values(c.Sizes)) {
		command := backlogCommand{
			Jobs: jobs, Rate: c.Rate, Capacity: c.Capacity, HostRate: 1, Concurrency: c.Concurrency,
			Repeat: c.Repeat, Waiting: c.Waiting,
		}
		if jobs <= maxWikiJobs || c.All {
			command.Against = []string{"wiki"}
		}
		s, err := command.spec()
		if err != nil {
			return fmt.Errorf("--sizes %d: %w", jobs, err)
		}
		systems, err := pick(command.Against)
		if err != nil {
			return err
		}
		more, err := b.backlog(s, systems, c.Repeat)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	return printRows(b, c.JSON, backlogColumns, rows)
}

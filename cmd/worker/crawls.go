package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/tasks/frontier"
)

type crawlsCommand struct {
	Name string `arg:"" optional:"" help:"Show this crawl, with each of its hosts."`
	JSON bool   `help:"Print a JSON array of crawls, or the object of the one."`
}

func (crawlsCommand) Help() string {
	return `Says how far crawls have come in their last run: how many URLs they have found, and what has become of them. "missing" are those answered with a 4xx, "failed" those whose jobs are archived or dropped, "unchanged" those that are as they were in an earlier run, and "beyond" says how often links were left out because the crawl or their host has as many pages as crawl.max_pages and crawl.max_host_pages allow. A crawl is forgotten 90 days after its last job.`
}

func (c *crawlsCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	conf, rdb, err := conn.open(ctx)
	if err != nil {
		return err
	}
	f := frontier.New(rdb, conf.Scope)
	if c.Name != "" {
		return c.show(ctx, f, stdio)
	}
	names, err := f.Crawls(ctx)
	if err != nil {
		return err
	}
	crawls := []frontier.Progress{}
	var rows [][]string
	for _, name := range names {
		p, ok, err := f.Progress(ctx, name)
		if err != nil {
			return err
		}
		if ok {
			crawls = append(crawls, p)
			rows = append(rows, append([]string{p.Name, p.Began.Format(time.DateTime), endedAt(p)}, countCells(p.Counts)...))
		}
	}
	const none = `there are no crawls yet: "enqueue crawl URL" begins one`
	return printList(stdio.Out, c.JSON, crawls, append([]string{"NAME", "BEGAN", "ENDED"}, countNames...), rows, none)
}

func (c *crawlsCommand) show(ctx context.Context, f *frontier.Frontier, stdio cli.IO) error {
	p, ok, err := f.Progress(ctx, c.Name)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("no crawl %q has begun: see \"worker crawls\" for those that have", c.Name)
	}
	if c.JSON {
		return cli.JSON(stdio.Out, p)
	}
	fmt.Fprintf(stdio.Out, "%s  run %s, began %s, ended %s\n", p.Name, p.Run, p.Began.Format(time.DateTime), endedAt(p))
	var rows [][]string
	for _, h := range p.Hosts {
		rows = append(rows, append([]string{h.Host}, countCells(h.Counts)...))
	}
	rows = append(rows, append([]string{"(all)"}, countCells(p.Counts)...))
	return cli.Table(stdio.Out, append([]string{"HOST"}, countNames...), rows)
}

// endedAt is when nothing waited any more.
func endedAt(p frontier.Progress) string {
	if p.Ended.IsZero() {
		return "-"
	}
	return p.Ended.Format(time.DateTime)
}

var countNames = []string{"FOUND", "WAITING", "FETCHED", "UNCHANGED", "REDIRECTED", "MISSING", "DISALLOWED", "FAILED", "BEYOND"}

func countCells(c frontier.Counts) []string {
	return numbers(c.Found, c.Waiting, c.Fetched, c.Unchanged, c.Redirected, c.Missing, c.Disallowed, c.Failed, c.Beyond)
}

package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/inspect"
)

type crawlsCommand struct {
	Name  string `arg:"" optional:"" help:"Show this crawl, with the reasons why it skipped URLs."`
	URLs  bool   `name:"urls" help:"List the URLs of the crawl with their states and the pages that link to them."`
	State string `placeholder:"STATE" help:"With --urls: only URLs in this state, such as missing."`
	JSON  bool   `help:"Print a JSON array of crawls, a JSON object for one crawl, or JSON lines with --urls."`
	CSV   bool   `name:"csv" help:"With --urls: print CSV with the columns state, url and from."`
}

// Validate reports what is wrong with the flags. kong calls it.
func (c *crawlsCommand) Validate() error {
	switch {
	case c.URLs && c.Name == "":
		return errors.New("--urls: want the crawl's name, too: worker crawls NAME --urls")
	case !c.URLs && (c.State != "" || c.CSV):
		return errors.New("--state and --csv: want --urls, too")
	case c.JSON && c.CSV:
		return errors.New("--json and --csv: want one of them")
	case c.State != "" && !slices.Contains(frontier.States(), c.State):
		return fmt.Errorf("--state %q: want one of %s", c.State, strings.Join(frontier.States(), ", "))
	}
	return nil
}

func (crawlsCommand) Help() string {
	return `Shows how many URLs crawls have found, and their states. "missing" URLs were answered with a 4xx or a redirect that leads nowhere. The jobs of "failed" URLs are archived or dropped. URLs that the crawl left out are counted by reason: disallowed by robots.txt, beyond crawl.max_pages or crawl.max_host_pages, too deep (--depth), on another host (--allow), excluded (crawl.include, crawl.exclude), or unread because a page has too many links. A crawl remembers as many of these URLs as it may have pages. It counts any further URL each time it finds it.

A finished crawl starts over when a URL is enqueued for it. It is forgotten 90 days after its last job.

--urls lists the URLs in no order, including those that were left out. While the crawl is running, a URL can appear twice.`
}

func (c *crawlsCommand) Run(ctx context.Context, conn *connection, stdio cli.IO) error {
	conf, rdb, err := conn.open(ctx)
	if err != nil {
		return err
	}
	f := frontier.New(rdb, conf.Scope)
	switch {
	case c.URLs:
		return c.list(ctx, f, stdio.Out)
	case c.Name != "":
		return c.show(ctx, f, inspect.New(rdb, conf.WaitDB(rdb), conf.Scope), stdio)
	}
	names, err := f.Crawls(ctx)
	if err != nil {
		return err
	}
	type row struct {
		frontier.Progress
		leftOut int // replaces the counts by reason
	}
	var crawls []row
	for _, name := range names {
		p, ok, err := f.Progress(ctx, name)
		if err != nil {
			return err
		}
		if ok {
			crawls = append(crawls, row{p, p.LeftOut.Sum()})
		}
	}
	return cli.List(stdio.Out, c.JSON, crawls, `there are no crawls yet: "enqueue crawl URL" starts one`,
		"NAME", "BEGAN", "ENDED", "FOUND", "WAITING", "FETCHED", "REDIRECTED", "MISSING", "FAILED", "LEFT OUT")
}

func (c *crawlsCommand) show(ctx context.Context, f *frontier.Frontier, q *inspect.Queues, stdio cli.IO) error {
	p, ok, err := f.Progress(ctx, c.Name)
	if err != nil {
		return err
	}
	if !ok {
		return c.notBegun(ctx, q, stdio.Out)
	}
	if c.JSON {
		return cli.JSON(stdio.Out, p)
	}
	fmt.Fprintf(stdio.Out, "%s  began %s, ended %s\n", p.Name, cli.DateTime(p.Began), cli.DateTime(p.Ended))
	type row struct {
		state   string
		urls    int
		meaning string
	}
	return cli.Table(stdio.Out, []row{
		{"found", p.Found, ""},
		{"waiting", p.Waiting, ""},
		{"fetched", p.Fetched, ""},
		{"redirected", p.Redirected, ""},
		{"missing", p.Missing, "answered with a 4xx, or a redirect that leads nowhere"},
		{"failed", p.Failed, "the job is archived or dropped"},
		{"disallowed", p.LeftOut.Disallowed, "left out: by robots.txt"},
		{"max_pages", p.LeftOut.MaxPages, "left out: beyond crawl.max_pages"},
		{"max_host_pages", p.LeftOut.MaxHostPages, "left out: beyond crawl.max_host_pages"},
		{"too_deep", p.LeftOut.TooDeep, "left out: beyond --depth"},
		{"other_host", p.LeftOut.OtherHost, "left out: the host is not in --allow"},
		{"excluded", p.LeftOut.Excluded, "left out: by crawl.include and crawl.exclude"},
		{"unread", p.LeftOut.Unread, "left out: the page has more links than are read"},
	}, "STATE", "URLS", "MEANING")
}

// notBegun handles a crawl that no worker has started, or that does not exist.
func (c *crawlsCommand) notBegun(ctx context.Context, q *inspect.Queues, out io.Writer) error {
	jobs, err := q.Find(ctx, inspect.Archive, inspect.CrawlJobs(c.Name), math.MaxInt)
	switch {
	case err != nil:
		return err
	case len(jobs) == 0:
		return noCrawl(c.Name)
	case c.JSON:
		return cli.JSON(out, frontier.Progress{Name: c.Name, Counts: frontier.Counts{Found: len(jobs), Waiting: len(jobs)}})
	}
	_, err = fmt.Fprintf(out, "%s  not started yet: no worker has taken any of %s\n", c.Name, display.Count(len(jobs), "job"))
	return err
}

// list prints the URLs while it reads them, because a crawl can have millions.
func (c *crawlsCommand) list(ctx context.Context, f *frontier.Frontier, out io.Writer) error {
	if _, ok, err := f.Progress(ctx, c.Name); err != nil || !ok {
		return cmp.Or(err, noCrawl(c.Name))
	}
	table := csv.NewWriter(out)
	switch {
	case c.CSV:
		_ = table.Write([]string{"state", "url", "from"}) // Error reports it
	case !c.JSON:
		fmt.Fprintf(out, "%-14s  %s  %s\n", "STATE", "URL", "FROM")
	}
	write := func(u frontier.URL) (err error) {
		switch {
		case c.CSV:
			err = table.Write([]string{u.State, u.URL, u.From})
		case c.JSON:
			err = cli.JSONLine(out, u)
		default:
			_, err = fmt.Fprintf(out, "%-14s  %s  %s\n", u.State, cli.Cell(u.URL), cli.Cell(cmp.Or(u.From, "-")))
		}
		return err
	}
	err := f.URLs(ctx, c.Name, c.State, func(urls []frontier.URL) error {
		for _, u := range urls {
			if err := write(u); err != nil {
				return err
			}
		}
		table.Flush()
		return table.Error()
	})
	table.Flush()
	return errors.Join(err, table.Error())
}

func noCrawl(name string) error {
	return fmt.Errorf("no crawl %q: see \"worker crawls\" for all crawls", name)
}

package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

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
	case c.State != "" && !slices.Contains(frontier.StateNames(), c.State):
		return fmt.Errorf("--state %q: want one of %s", c.State, strings.Join(frontier.StateNames(), ", "))
	}
	return nil
}

func (crawlsCommand) Help() string {
	return `Shows how many URLs crawls have found, and their states. "missing" URLs were answered with a 4xx or a redirect that leads nowhere, the jobs of "failed" URLs are archived or dropped. URLs that the crawl left out are counted by reason: disallowed by robots.txt, beyond crawl.max_pages or crawl.max_host_pages, too deep (--depth), on another host (--allow), excluded (crawl.include, crawl.exclude), or unread because a page has too many links. A crawl remembers as many of these URLs as it may have pages, and counts further ones each time it finds them.

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
		return c.show(ctx, f, inspect.New(rdb, conf.Limiter(rdb), conf.Scope), stdio)
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
			cells := numbers(p.Found, p.Waiting, p.Fetched, p.Redirected, p.Missing, p.Failed, p.LeftOut.Sum())
			rows = append(rows, append([]string{p.Name, p.Began.Format(time.DateTime), endedAt(p)}, cells...))
		}
	}
	const none = `there are no crawls yet: "enqueue crawl URL" starts one`
	titles := []string{"NAME", "BEGAN", "ENDED", "FOUND", "WAITING", "FETCHED", "REDIRECTED", "MISSING", "FAILED", "LEFT OUT"}
	return printList(stdio.Out, c.JSON, crawls, titles, rows, none)
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
	fmt.Fprintf(stdio.Out, "%s  began %s, ended %s\n", p.Name, p.Began.Format(time.DateTime), endedAt(p))
	var rows [][]string
	add := func(name, why string, n int) { rows = append(rows, []string{name, strconv.Itoa(n), why}) }
	add("found", "", p.Found)
	add("waiting", "", p.Waiting)
	add("fetched", "", p.Fetched)
	add("redirected", "", p.Redirected)
	add("missing", "answered with a 4xx, or a redirect that leads nowhere", p.Missing)
	add("failed", "the job is archived or dropped", p.Failed)
	out := p.LeftOut
	add("disallowed", "left out: by robots.txt", out.Disallowed)
	add("max_pages", "left out: beyond crawl.max_pages", out.MaxPages)
	add("max_host_pages", "left out: beyond crawl.max_host_pages", out.MaxHostPages)
	add("too_deep", "left out: beyond --depth", out.TooDeep)
	add("other_host", "left out: the host is not in --allow", out.OtherHost)
	add("excluded", "left out: by crawl.include and crawl.exclude", out.Excluded)
	add("unread", "left out: the page has more links than are read", out.Unread)
	return cli.Table(stdio.Out, []string{"STATE", "URLS", "MEANING"}, rows)
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

// list writes the URLs while it reads them, because a crawl can have millions.
func (c *crawlsCommand) list(ctx context.Context, f *frontier.Frontier, out io.Writer) error {
	if _, ok, err := f.Progress(ctx, c.Name); err != nil || !ok {
		return cmp.Or(err, noCrawl(c.Name))
	}
	write := func(u frontier.URL) error {
		_, err := fmt.Fprintf(out, "%-14s  %s  %s\n", u.State, cli.Cell(u.URL), cli.Cell(cmp.Or(u.From, "-")))
		return err
	}
	table := csv.NewWriter(out)
	switch {
	case c.JSON:
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)
		write = func(u frontier.URL) error { return lines.Encode(u) }
	case c.CSV:
		write = func(u frontier.URL) error { return table.Write([]string{u.State, u.URL, u.From}) }
		if err := table.Write([]string{"state", "url", "from"}); err != nil {
			return err
		}
	default:
		fmt.Fprintf(out, "%-14s  %s  %s\n", "STATE", "URL", "FROM")
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

func endedAt(p frontier.Progress) string {
	if p.Ended.IsZero() {
		return "-"
	}
	return p.Ended.Format(time.DateTime)
}

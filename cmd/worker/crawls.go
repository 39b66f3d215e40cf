package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/frontier"
)

type crawlsCommand struct {
	Name  string `arg:"" optional:"" help:"Show this crawl, with the reasons why it skipped URLs."`
	URLs  bool   `name:"urls" help:"List the URLs of the crawl with their states, the pages that link to them, and the files of saved pages."`
	State string `placeholder:"STATE" help:"With --urls: only URLs in this state, such as missing."`
	CSV   bool   `name:"csv" help:"With --urls: print CSV with the columns state, url, from and file."`
	JSON  bool   `help:"Print a JSON array of crawls, a JSON object for one crawl, or JSON lines with --urls."`
}

// Validate reports what is wrong with the flags. kong calls it.
func (c *crawlsCommand) Validate() error {
	switch {
	case c.URLs && c.Name == "":
		return errors.New("--urls requires the name of a crawl: \"worker crawls NAME --urls\"")
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
	return `Shows how many URLs crawls have found, and their states. "missing" URLs were answered with a 4xx or a redirect without a valid target. The jobs of "failed" URLs are archived or dropped. URLs that the crawl left out are counted by reason: disallowed by robots.txt, beyond crawl.max_pages or crawl.max_host_pages, too deep (--depth), on another host (--allow), excluded (crawl.include, crawl.exclude), or unread because a page has too many links. A crawl remembers at most about crawl.max_pages of the URLs that it left out. It counts a further URL again each time it finds it, so these counts can be too high.

A finished crawl starts over when a URL is enqueued for it. It is forgotten 90 days after its last job.

--urls lists the URLs in no order, with the file of each page that a worker saved below crawl.save_dir, including those that were left out. While the crawl is running, a URL can appear twice.`
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
		p, ok, err := f.Progress(ctx, c.Name)
		if err != nil || !ok {
			return cmp.Or(err, noCrawl(c.Name))
		}
		return cli.Print(stdio.Out, c.JSON, p)
	}
	names, err := f.Crawls(ctx)
	if err != nil {
		return err
	}
	type row struct {
		frontier.Progress
		leftOut int // number of URLs that the crawl left out, for any reason
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
	return cli.List(stdio.Out, c.JSON, crawls, `there are no crawls yet, or no worker has taken a job of one: "enqueue crawl URL" starts a crawl`,
		"NAME", "BEGAN", "ENDED", "FOUND", "WAITING", "FETCHED", "REDIRECTED", "MISSING", "FAILED", "LEFT OUT")
}

// list prints the URLs while it reads them, because a crawl can have millions.
func (c *crawlsCommand) list(ctx context.Context, f *frontier.Frontier, out io.Writer) error {
	if _, ok, err := f.Progress(ctx, c.Name); err != nil || !ok {
		return cmp.Or(err, noCrawl(c.Name))
	}
	table := csv.NewWriter(out)
	switch {
	case c.CSV:
		_ = table.Write([]string{"state", "url", "from", "file"})
		table.Flush() // table.Error reports a failure of Write or Flush
	case !c.JSON:
		fmt.Fprintf(out, "%-14s  %s  %s  %s\n", "STATE", "URL", "FROM", "FILE")
	}
	return f.URLs(ctx, c.Name, c.State, func(urls []frontier.URL) (err error) {
		for _, u := range urls {
			if u.File != "" {
				u.File = c.Name + "/" + u.File
			}
			switch {
			case c.CSV:
				err = table.Write([]string{u.State, u.URL, u.From, u.File})
			case c.JSON:
				err = cli.JSONLine(out, u)
			default:
				_, err = fmt.Fprintf(out, "%-14s  %s  %s  %s\n", u.State, cli.Cell(u.URL), cli.Cell(cmp.Or(u.From, "-")), cmp.Or(u.File, "-"))
			}
			if err != nil {
				return err
			}
		}
		table.Flush()
		return table.Error()
	})
}

func noCrawl(name string) error {
	return fmt.Errorf("no crawl %q, or no worker has taken a job of it: see \"worker crawls\" for all crawls", name)
}

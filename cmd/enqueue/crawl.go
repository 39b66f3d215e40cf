package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/frontier"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/tasks"
)

const aboutCrawl = `Starts a crawl, or adds URLs to the running crawl of that name.

  enqueue crawl https://example.com/
  enqueue crawl https://example.com/ https://example.org/ --depth 5 --allow same-site --name both

A crawl fetches each URL once, with a job of type crawl:fetch. In the worker's config, set the key of the limits of crawl:fetch to host(payload.url), so that each host has its own rate. The crawl obeys robots.txt with its Crawl-delay, and follows the links of pages and the sitemaps in robots.txt. URLs for a running crawl join it; a finished crawl starts over. "worker crawls NAME" shows the progress.`

type crawlCommand struct {
	cli.Globals
	URLs  []string `arg:"" name:"url" help:"URLs to start from."`
	Depth int      `default:"3" placeholder:"N" help:"How many links away from these URLs the crawl goes (default ${default}). 0 fetches only these URLs."`
	Allow []string `placeholder:"HOST" help:"Allowed hosts: same-host (the default), same-site, a host such as example.com, or *.example.com for all hosts below it."`
	Name  string   `placeholder:"NAME" help:"Name of the crawl (default: the host of the first URL)."`
	Crawl string   `hidden:""` // what the payload calls it: Validate tells the flag
	Anew  bool     `help:"Start the crawl over although it is running. Its waiting jobs are deleted."`
	JSON  bool     `help:"Print a JSON object: enqueued, there_already, bad_lines, crawl (the name), and, if only one URL is given, id (the ID of its job)."`
	jobspec.Options

	start int64 // the Start of each job: see tasks.CrawlFetch
}

// Validate reports what is wrong with the flags. kong calls it.
func (c *crawlCommand) Validate() error {
	if c.Crawl != "" {
		return errors.New("unknown flag --crawl: want --name")
	}
	for _, host := range c.Allow {
		if err := tasks.ValidateAllow(host); err != nil {
			return fmt.Errorf("--allow %w", err)
		}
	}
	if c.Depth < 0 || c.Depth > tasks.MaxDepth {
		return fmt.Errorf("--depth %d: want a depth from 0 to %d", c.Depth, tasks.MaxDepth)
	}
	return cli.FlagError(c.Options.Validate())
}

// Run adds the first jobs of the crawl. If one of them is bad, it adds none.
func (c *crawlCommand) Run(ctx context.Context, stdio cli.IO) error {
	conf, err := c.Load()
	if err != nil {
		return err
	}
	jobs, err := c.jobs()
	if err != nil {
		return cli.Usagef("%w", err)
	}
	if c.Anew {
		if err := c.restart(ctx, conf, stdio); err != nil {
			return err
		}
	}
	e := newEnqueuer(conf, c.Options, stdio)
	e.json, e.crawl, e.single = c.JSON, c.Name, len(jobs) == 1
	if err := e.add(ctx, given(jobs...), true); err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(stdio.Out, "crawl %s: see \"%s crawls %s\"\n", c.Name, cli.Worker, c.Name)
	}
	return nil
}

// restart starts the crawl over, and deletes the jobs of its previous run that are not running.
func (c *crawlCommand) restart(ctx context.Context, conf *config.Config, stdio cli.IO) error {
	rdb, end, err := conf.Redis.Connect(ctx)
	if errors.Is(err, config.ErrNoRedis) {
		return nil // there is no crawl yet
	}
	if err != nil {
		return err
	}
	defer end()
	if err := frontier.New(rdb, conf.Scope).Begin(ctx, frontier.Crawl{Name: c.Name, Start: c.start}); err != nil {
		return err
	}
	q := conf.Inspect(rdb)
	old := inspect.Filter{Type: tasks.TypeCrawlFetch, Payload: fmt.Sprintf(`"crawl":%q`, c.Name), States: inspect.Archive.States}
	jobs, err := q.Find(ctx, inspect.Delete, old, math.MaxInt)
	if err != nil {
		return err
	}
	n, err := q.Apply(ctx, inspect.Delete, old, jobs)
	if n > 0 {
		fmt.Fprintf(stdio.Err, "%s: deleted %s of the previous crawl\n", cli.Enqueue, display.Count(n, "waiting job"))
	}
	return err
}

func (c *crawlCommand) jobs() ([]jobspec.Job, error) {
	if c.Name == "" {
		c.Name = canonical.HostOf(c.URLs[0])
	}
	if c.Name == "" {
		c.Name = "crawl" // CrawlFetch.Validate rejects the URL below
	}
	c.start = time.Now().UnixMicro()
	var hosts []string // the hosts of all URLs, because all URLs start the same crawl
	for _, url := range c.URLs {
		hosts = append(hosts, tasks.CrawlFetch{URL: url, Allow: c.Allow}.Hosts()...)
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	var jobs []jobspec.Job
	for _, url := range c.URLs {
		page := tasks.CrawlFetch{Crawl: c.Name, URL: url, Depth: c.Depth, Allow: hosts, Start: c.start}
		if err := page.Validate(); err != nil {
			return nil, err
		}
		payload, err := json.Marshal(page)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, jobspec.Job{Type: tasks.TypeCrawlFetch, Payload: payload, ID: page.ID(), Options: c.Options})
	}
	return jobs, nil
}

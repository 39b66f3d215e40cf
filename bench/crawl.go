package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/crawlsite"
)

type crawlCommand struct {
	Pages int  `default:"300" help:"How many pages there are on all five hosts."`
	Kill  bool `default:"true" negatable:"" help:"Also kill each crawler half way, and start it again."`
	JSON  bool `name:"json" help:"Print one JSON array."`
}

// crawlTolerance is by how much two requests may arrive nearer to each other than
// they left, besides what the machine is late by.
const crawlTolerance = 10 * time.Millisecond

// crawlRow is what the hosts saw of one crawl.
type crawlRow struct {
	Case       string             `json:"case"`
	System     string             `json:"system"`
	Took       float64            `json:"took_s"`
	PagesPer   float64            `json:"pages_per_s"`
	Least      map[string]float64 `json:"least_interval_ms"` // by host
	Short      int                `json:"short_intervals"`   // by more than crawlTolerance and Late
	Late       float64            `json:"machine_late_ms"`
	Refused    int                `json:"answers_429"`
	Disallowed int                `json:"disallowed"`
	Lost       int                `json:"pages_lost"`
	Again      int                `json:"fetched_again"`
}

// crawlColumns has one for each host, which says what its interval should be.
func crawlColumns() []column[crawlRow] {
	columns := []column[crawlRow]{
		{"case", func(r crawlRow) string { return r.Case }},
		{"system", func(r crawlRow) string { return r.System }},
		{"s", func(r crawlRow) string { return number(&r.Took, 1) }},
		{"pages/s", func(r crawlRow) string { return number(&r.PagesPer, 1) }},
	}
	for _, host := range crawlsite.Hosts {
		title := fmt.Sprintf("%s ≥ %d", strings.TrimSuffix(host, ".test"), crawlsite.Limit(host).Milliseconds())
		columns = append(columns, column[crawlRow]{title, func(r crawlRow) string { least := r.Least[host]; return number(&least, 0) }})
	}
	return append(columns,
		column[crawlRow]{"too short", func(r crawlRow) string { return fmt.Sprint(r.Short) }},
		column[crawlRow]{"machine late ms", func(r crawlRow) string { return number(&r.Late, 0) }},
		column[crawlRow]{"429", func(r crawlRow) string { return fmt.Sprint(r.Refused) }},
		column[crawlRow]{"disallowed", func(r crawlRow) string { return fmt.Sprint(r.Disallowed) }},
		column[crawlRow]{"lost", func(r crawlRow) string { return fmt.Sprint(r.Lost) }},
		column[crawlRow]{"again", func(r crawlRow) string { return fmt.Sprint(r.Again) }},
	)
}

// crawler is a system that crawls.
type crawler struct {
	name  string
	begin func(b *bench, site *crawlsite.Site) (crawl, error)
}

// crawl is one crawl of a site, by a process that can be killed.
type crawl struct {
	start func(again bool) (*exec.Cmd, error)
	wait  func(*exec.Cmd) error // until there is no more to do, and the process ends
	clean func() error
}

var crawlers = []crawler{{"headgate", beginHeadgate}, {"colly", beginColly}}

// Run has each crawler crawl the same site, once without trouble, and once killed
// with kill -9 when half of the pages have been fetched, and started again.
func (c *crawlCommand) Run(b *bench) error {
	if c.Pages < 2*len(crawlsite.Hosts) {
		return fmt.Errorf("--pages %d: want %d or more", c.Pages, 2*len(crawlsite.Hosts))
	}
	var rows []crawlRow
	cases := []bool{false, true}
	if !c.Kill {
		cases = cases[:1]
	}
	for _, killed := range cases {
		for _, crawler := range crawlers {
			row, err := c.measure(b, crawler, killed)
			if err != nil {
				return fmt.Errorf("%s: %w", crawler.name, err)
			}
			rows = append(rows, row)
			b.note("%s, %s: %.1f s", row.Case, row.System, row.Took)
		}
	}
	return printRows(b, c.JSON, crawlColumns(), rows)
}

func (c *crawlCommand) measure(b *bench, with crawler, killed bool) (row crawlRow, err error) {
	if err := b.empty(); err != nil {
		return row, err
	}
	site, err := crawlsite.Start(c.Pages / len(crawlsite.Hosts))
	if err != nil {
		return row, err
	}
	defer site.Close()
	crawl, err := with.begin(b, site)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, crawl.clean()) }()
	process, err := crawl.start(false)
	if err != nil {
		return row, err
	}
	row = crawlRow{Case: fmt.Sprintf("%d pages", c.Pages), System: with.name, Least: map[string]float64{}}
	if killed {
		row.Case += ", killed half way"
		if process, err = restart(b, site, crawl, process, c.Pages/2); err != nil {
			return row, err
		}
	}
	if err := crawl.wait(process); err != nil {
		return row, err
	}
	row.see(site.Report())
	return row, nil
}

// restart kills the process when so many pages have been fetched, and starts it
// again.
func restart(b *bench, site *crawlsite.Site, crawl crawl, process *exec.Cmd, pages int) (*exec.Cmd, error) {
	for site.Fetched() < pages {
		if err := b.sleep(10 * time.Millisecond); err != nil {
			return nil, errors.Join(err, kill(process))
		}
	}
	if err := kill(process); err != nil {
		return nil, err
	}
	return crawl.start(true)
}

// kill is kill -9.
func kill(process *exec.Cmd) error {
	err := process.Process.Kill()
	_ = process.Wait() // it was killed
	return err
}

// see takes in what the hosts saw.
func (r *crawlRow) see(report crawlsite.Report) {
	pages := 0
	for _, host := range report.Rows {
		pages += host.Pages
		r.Least[host.Host] = host.Least.Seconds() * 1000
		r.Refused += host.Refused
		r.Disallowed += host.Disallowed
		r.Lost += host.Missed
		r.Again += host.Twice
	}
	_, r.Short = report.Undercut(crawlTolerance)
	r.Late = report.Late.Seconds() * 1000
	r.Took = report.Took.Seconds()
	r.PagesPer = float64(pages) / r.Took
}

// beginHeadgate has headgate's own commands crawl, with bench's Redis.
func beginHeadgate(b *bench, site *crawlsite.Site) (c crawl, err error) {
	programs, err := site.Install(b.ctx, []byte(crawlConfig))
	if err != nil {
		return c, err
	}
	redis := []string{"--redis", b.server.URL()}
	c.start = func(again bool) (*exec.Cmd, error) {
		if !again {
			if err := programs.Begin(redis...); err != nil {
				return nil, err
			}
		}
		worker := programs.Worker(redis...)
		return worker, worker.Start()
	}
	c.wait = func(worker *exec.Cmd) error {
		err := programs.Wait(site, redis...)
		return errors.Join(err, worker.Process.Signal(os.Interrupt), worker.Wait())
	}
	c.clean = func() error { return os.RemoveAll(programs.Dir) }
	return c, nil
}

// crawlConfig says of the hosts what colly's rules say.
const crawlConfig = `
concurrency: 20
http: {proxy: environment, allow_private: [127.0.0.0/8]}
crawl: {agent: examplebot/1.0, dir: pages}
limits:
  host: {kind: funnel, rate: 1/200ms, margin: 20ms, overrides: {slow.test: 1/400ms}}
tasks:
  crawl:fetch: {limits: [{limit: host, key: host(payload.url)}]}
`

// beginColly has this program crawl with colly, in a process of its own.
func beginColly(b *bench, site *crawlsite.Site) (c crawl, err error) {
	program, err := os.Executable()
	if err != nil {
		return c, err
	}
	c.start = func(bool) (*exec.Cmd, error) {
		process := exec.CommandContext(b.ctx, program, collyCommand, site.Proxy())
		process.Stderr = b.stderr
		return process, process.Start()
	}
	c.wait = (*exec.Cmd).Wait
	c.clean = func() error { return nil }
	return c, nil
}

// collyCommand is the argument with which this program is a crawler. The proxy of
// the site follows.
const collyCommand = "crawl-with-colly"

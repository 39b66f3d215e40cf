package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/pagetest"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

type pageCommand struct {
	Jobs    int           `default:"100000" help:"Jobs that wait."`
	Keys    int           `default:"10000" help:"Keys that they wait for."`
	Viewers []int         `default:"0,1,10" help:"How many look at the same time, one run each."`
	For     time.Duration `default:"20s" help:"How long each run is."`
	Path    string        `default:"?open=per-host" help:"The page that they look at."`
	JSON    bool          `name:"json" help:"Print one JSON array."`
}

// pageRow is what one run gave.
type pageRow struct {
	Viewers    int     `json:"viewers"`
	FirstPaint float64 `json:"first_paint_s"` // in a Chromium, from the click on
	Updates    float64 `json:"updates_per_viewer_s"`
	RedisCPU   float64 `json:"redis_cpu"` // share of a core, less what it takes with no viewer
	Commands   float64 `json:"redis_commands_s"`
}

var pageColumns = []column[pageRow]{
	{"viewers", func(r pageRow) string { return fmt.Sprint(r.Viewers) }},
	{"first paint", func(r pageRow) string { return fmt.Sprintf("%.0f ms", 1000*r.FirstPaint) }},
	{"updates a viewer/s", func(r pageRow) string { return fmt.Sprintf("%.2f", r.Updates) }},
	{"of a Redis core", func(r pageRow) string { return fmt.Sprintf("%.2f %%", 100*r.RedisCPU) }},
	{"commands/s", func(r pageRow) string { return thousands(int(r.Commands)) }},
}

// Run measures how soon the page is there, and what those who look at the page cost a Redis in which much waits.
func (c *pageCommand) Run(b *bench) error {
	if c.Jobs < 1 || c.Keys < 1 || c.For <= 0 {
		return fmt.Errorf("--jobs %d --keys %d --for %s: want 1 or more of each, and some time", c.Jobs, c.Keys, c.For)
	}
	limiter := lanes.New(throttle.New(b.rdb, throttle.RedisOptions{}))
	if err := c.fill(b.ctx, b, limiter); err != nil {
		return err
	}
	var rows []pageRow
	var idle float64
	for _, viewers := range c.Viewers {
		row, err := c.watch(b, limiter, viewers)
		if err != nil {
			return err
		}
		if viewers == 0 {
			idle = row.RedisCPU
		}
		row.RedisCPU -= idle
		b.note("page: %d viewers: first paint %.0f ms, %.2f %% of a Redis core", viewers, 1000*row.FirstPaint, 100*row.RedisCPU)
		rows = append(rows, row)
	}
	return printRows(b, c.JSON, pageColumns, rows)
}

// fill has the jobs wait.
func (c *pageCommand) fill(ctx context.Context, b *bench, limiter *lanes.Lanes) error {
	b.note("page: %s jobs of %s keys join their lanes, which takes half a minute for 100,000, and then there are %d runs of %s", thousands(c.Jobs), thousands(c.Keys), len(c.Viewers), c.For)
	limits := []throttle.Limit{
		{Name: shared, Kind: throttle.Funnel, Rate: throttle.PerSecond(100), Capacity: 10},
		{Name: perHost, Kind: throttle.Funnel, Rate: throttle.PerHour(1)},
	}
	if err := limiter.Define(ctx, limits...); err != nil {
		return err
	}
	jobs := make(chan int)
	errs := make(chan error, 16)
	var workers sync.WaitGroup
	for range cap(errs) {
		workers.Go(func() {
			for i := range jobs {
				job := lanes.Job{JobID: throttle.JobID{Queue: "default", ID: fmt.Sprintf("job-%d", i)}}
				_, err := limiter.Acquire(ctx, job, throttle.Need{Limit: perHost, Key: fmt.Sprintf("host-%d.example", i%c.Keys)}, throttle.Need{Limit: shared})
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	for i := range c.Jobs {
		select {
		case jobs <- i:
		case err := <-errs:
			return err
		}
	}
	close(jobs)
	workers.Wait()
	close(errs)
	return <-errs // nil where there is none
}

// watch has so many look for a while.
func (c *pageCommand) watch(b *bench, limiter *lanes.Lanes, viewers int) (pageRow, error) {
	row := pageRow{Viewers: viewers}
	p, err := page.New(page.Options{Redis: b.rdb, Limiter: limiter})
	if err != nil {
		return row, err
	}
	server := httptest.NewServer(p)
	defer server.Close()
	defer p.Close()
	if row.FirstPaint, err = firstPaint(b.ctx, server.URL+"/"+c.Path); err != nil {
		return row, err
	}

	counts := make([]int, viewers)
	spent, err := b.spent(func() error {
		ctx, cancel := context.WithTimeout(b.ctx, c.For)
		defer cancel()
		var all sync.WaitGroup
		for i := range viewers {
			all.Go(func() { counts[i] = updates(ctx, server.URL+"/events?of="+c.Path) })
		}
		<-ctx.Done()
		all.Wait()
		return nil
	})
	if err != nil {
		return row, err
	}
	for _, n := range counts {
		row.Updates += float64(n) / c.For.Seconds() / float64(viewers)
	}
	row.RedisCPU = spent.cpu.Seconds() / c.For.Seconds()
	row.Commands = float64(spent.commands) / c.For.Seconds()
	return row, b.ctx.Err()
}

// firstPaint is how many seconds a browser that has just been started takes until
// it shows something of a page.
func firstPaint(ctx context.Context, url string) (seconds float64, err error) {
	browser, done, err := pagetest.Open()
	if err != nil {
		return 0, err
	}
	defer done()
	defer context.AfterFunc(ctx, done)()
	var ms float64
	const paint = `performance.getEntriesByName('first-contentful-paint')[0]?.startTime`
	err = chromedp.Run(browser, chromedp.Navigate("about:blank"), chromedp.Navigate(url), chromedp.Poll(paint, &ms))
	return ms / 1000, err
}

// updates counts what comes until ctx ends.
func updates(ctx context.Context, url string) (n int) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if lines.Text() == "event: status" {
			n++
		}
	}
	return n
}

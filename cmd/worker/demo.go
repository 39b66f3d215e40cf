package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/worker"
	"github.com/headgate/headgate/scheduler/lanes"
)

type demoCommand struct {
	Jobs   *int          `placeholder:"N" help:"How many calls to make (default 200, and with --watch 2000)."`
	Rate   int           `default:"20" placeholder:"N" help:"How many calls a second the API allows (default ${default})."`
	Margin time.Duration `default:"150ms" placeholder:"DURATION" help:"Margin of the limits: how unevenly calls may arrive that leave at the right moments (default ${default}). With 0s expect a few answers 429."`
	Watch  bool          `help:"Open the live page in a browser while the jobs run."`
	JSON   bool          `help:"Print one JSON object instead of a table."`
}

func (demoCommand) Help() string {
	return `Starts a small API that counts the calls that arrive within any second by its own clock, and answers 429 to those above its limit. Then enqueues jobs that call it, under a limit for all of them and one for each of four accounts, and runs them.

The exit code is 0 only if the API had nothing to refuse and every job ran once. Without --redis it runs on a Redis of its own; in another it uses a queue and limits of its own, and removes them.`
}

func (c *demoCommand) Run(ctx context.Context, g *cli.Globals, stdio cli.IO) error {
	jobs := 200
	if c.Watch {
		jobs = 2000
	}
	if c.Jobs != nil {
		jobs = *c.Jobs
	}
	if jobs < 1 || c.Rate < 1 {
		return cli.Usagef("--jobs %d --rate %d: want at least 1 of each", jobs, c.Rate)
	}
	if c.Margin < 0 || c.Margin >= time.Second || c.Margin%time.Microsecond != 0 {
		return cli.Usagef("--margin %s: want 0s to less than 1s, in whole microseconds", c.Margin)
	}
	options := demo.Options{Jobs: jobs, Rate: c.Rate, Margin: c.Margin, Redis: g.Redis, Progress: stdio.Err}
	if c.Watch {
		options.Watch = watcher(ctx, stdio.Err)
	}
	result, err := demo.Run(ctx, options)
	if err != nil {
		return err
	}
	if c.JSON {
		err = cli.JSON(stdio.Out, result)
	} else {
		err = result.Print(stdio.Out)
	}
	if err == nil && !result.Good() {
		return cli.Failed
	}
	return err
}

func watcher(ctx context.Context, stderr io.Writer) func(redis.UniversalClient, *lanes.Lanes, string) (func(), error) {
	return func(rdb redis.UniversalClient, limiter *lanes.Lanes, scope string) (func(), error) {
		p, err := page.New(page.Options{Redis: rdb, Limiter: limiter, Scope: scope})
		if err != nil {
			return nil, err
		}
		listener, err := worker.Listen(ctx, ":0")
		if err != nil {
			return nil, err
		}
		server := worker.HTTPServer(p)
		go func() { _ = server.Serve(listener) }()
		url := "http://" + listener.Addr().String() + "/"
		fmt.Fprintf(stderr, "worker: watch it at %s\n", url)
		if cli.IsTerminal(stderr) {
			openBrowser(url)
		}
		return func() {
			_ = p.Close()
			worker.CloseServer(server)
		}, nil
	}
}

// openBrowser shows a page where there is a screen to show it on. Where that
// fails the address has been printed.
func openBrowser(url string) {
	command := "xdg-open"
	switch {
	case runtime.GOOS == "darwin":
		command = "open"
	case runtime.GOOS == "windows":
		command = "explorer"
	case strings.TrimSpace(os.Getenv("DISPLAY")+os.Getenv("WAYLAND_DISPLAY")) == "":
		return
	}
	if browser := exec.Command(command, url); browser.Start() == nil {
		go func() { _ = browser.Wait() }()
	}
}

type apiCommand struct {
	Listen string `default:":8080" placeholder:"ADDR" help:"Where to serve it: a port of this machine only, unless there is a host such as 0.0.0.0 before it (default ${default})."`
	Rate   int    `default:"20" placeholder:"N" help:"How many calls it allows in any second (default ${default})."`
}

func (apiCommand) Help() string {
	return `Answers any call, and 429 with Retry-After to those beyond its rate, by its own clock. Each second with calls it prints a line on how many it served and refused. It is the other side for a try: docker compose up runs one.`
}

func (c *apiCommand) Run(ctx context.Context, stdio cli.IO) error {
	if c.Rate < 1 {
		return cli.Usagef("--rate %d: want at least 1", c.Rate)
	}
	if c.Listen == "" {
		return cli.Usagef("--listen: want HOST:PORT or :PORT, such as :8080")
	}
	if _, err := config.ListenAddress(c.Listen); err != nil {
		return cli.Usagef("--listen %w", err)
	}
	l, err := worker.Listen(ctx, c.Listen)
	if err != nil {
		return err
	}
	api := demo.NewAPI(c.Rate)
	server := worker.HTTPServer(api)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	fmt.Fprintf(stdio.Out, "an API that allows %d calls a second is at http://%s\n", c.Rate, l.Addr())
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			worker.CloseServer(server)
			api.Tell(stdio.Out)
			return nil
		case err := <-served:
			return err
		case <-second.C:
			api.Tell(stdio.Out)
		}
	}
}

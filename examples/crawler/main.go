// Command crawler has headgate's two commands crawl 300 pages on five hosts of its
// own, and prints what these saw: how near requests came to each other, what was
// disallowed, missed or fetched twice. headgate.yaml is all that is specific to it.
//
//	go run ./examples/crawler
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/crawlsite"
)

//go:embed headgate.yaml
var config []byte

// tolerance is by how much two requests may arrive nearer to each other than they
// left, besides what comes from a machine that has other things to do.
const tolerance = 10 * time.Millisecond

func main() {
	pages := flag.Int("pages", 300, "how many pages there are on all hosts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	report, err := crawl(ctx, *pages, os.Stdout)
	if err == nil {
		wrong := append(report.Wrong(), report.Undercut(tolerance)...)
		if len(wrong) > 0 {
			err = errors.New(strings.Join(wrong, "\n"))
		}
	}
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "crawler:", err)
		os.Exit(1)
	}
}

// crawl has all pages crawled, and prints what the hosts saw.
func crawl(ctx context.Context, pages int, out io.Writer) (report crawlsite.Report, err error) {
	site, err := crawlsite.Start(pages / len(crawlsite.Hosts))
	if err != nil {
		return report, err
	}
	defer site.Close()
	dir, err := os.MkdirTemp("", "headgate-crawler-")
	if err != nil {
		return report, err
	}
	p := programs{ctx, dir, append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+dir, "HTTP_PROXY="+site.Proxy())}
	if err := p.install(); err != nil {
		return report, err
	}
	worker := p.command("worker", "run", "--log-level", "error")
	worker.Stderr = os.Stderr
	if err := worker.Start(); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, worker.Process.Signal(os.Interrupt), worker.Wait()) }()
	err = p.run("enqueue", "crawl", crawlsite.Seed, "--allow", "*.test", "--depth", "20", "--name", "example")
	if err != nil {
		return report, err
	}
	fmt.Fprintf(out, "crawling %d pages of %d hosts; they are kept in %s\n", pages, len(crawlsite.Hosts), filepath.Join(dir, "pages"))
	if err := p.wait(site); err != nil {
		return report, err
	}
	report = site.Report()
	return report, show(out, report)
}

// programs are headgate's commands in a folder, with a Redis of its own that the
// worker starts.
type programs struct {
	ctx context.Context
	dir string
	env []string
}

// install makes the folder ready.
func (p programs) install() error {
	build := exec.CommandContext(p.ctx, "go", "build", "-o", p.dir, "github.com/headgate/headgate/cmd/worker", "github.com/headgate/headgate/cmd/enqueue")
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	return errors.Join(
		os.Mkdir(filepath.Join(p.dir, "pages"), 0o755),
		os.WriteFile(filepath.Join(p.dir, "headgate.yaml"), config, 0o644),
	)
}

func (p programs) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.ctx, filepath.Join(p.dir, name), args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

func (p programs) run(name string, args ...string) error {
	if text, err := p.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, text)
	}
	return nil
}

// wait returns when nothing of the crawl is left to do. It asks seldom, and only
// when all pages have been fetched or nothing has for a while, for that takes time
// from the crawl.
func (p programs) wait(site *crawlsite.Site) error {
	fetched, since := -1, time.Now()
	for p.ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		if n := site.Fetched(); n > fetched {
			fetched, since = n, time.Now()
		}
		if !site.Done() && time.Since(since) < 5*time.Second {
			continue
		}
		since = time.Now()
		text, err := p.command("worker", "crawls", "example", "--json").Output()
		if err != nil {
			return err
		}
		var progress struct{ Waiting int }
		if err := json.Unmarshal(text, &progress); err != nil || progress.Waiting == 0 {
			return err
		}
	}
	return p.ctx.Err()
}

// show prints what the hosts saw.
func show(out io.Writer, report crawlsite.Report) error {
	var rows [][]string
	for _, r := range report.Rows {
		row := []string{r.Host}
		for _, n := range []int{r.Pages, r.Requests, r.Missed, r.Twice, r.Disallowed, r.Refused} {
			row = append(row, fmt.Sprint(n))
		}
		rows = append(rows, append(row, milliseconds(r.Least), milliseconds(r.Limit)))
	}
	err := cli.Table(out, []string{"HOST", "PAGES", "REQUESTS", "MISSED", "TWICE", "DISALLOWED", "429", "SMALLEST INTERVAL", "LIMIT"}, rows)
	slow := report.Slowest()
	fmt.Fprintf(out, "%.1f s from the first request to the last: %.2f of the %.1f s that %s takes at least\n",
		report.Took.Seconds(), report.Took.Seconds()/slow.Bound().Seconds(), slow.Bound().Seconds(), slow.Host)
	fmt.Fprintf(out, "meanwhile this machine let a process go on %s late at worst: with the %s that are tolerated on the way, so much may be missing of an interval\n",
		milliseconds(report.Late), tolerance)
	return err
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// Command crawler has headgate's two commands crawl 300 pages on five hosts of its
// own, and prints what these saw: how near requests came to each other, what was
// disallowed, missed or fetched twice. headgate.yaml is all that is specific to it.
//
//	go run ./examples/crawler
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
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
		undercut, _ := report.Undercut(tolerance)
		if wrong := append(report.Wrong(), undercut...); len(wrong) > 0 {
			err = errors.New(strings.Join(wrong, "\n"))
		}
	}
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "crawler:", err)
		os.Exit(1)
	}
}

func crawl(ctx context.Context, pages int, out io.Writer) (report crawlsite.Report, err error) {
	site, err := crawlsite.Start(pages / len(crawlsite.Hosts))
	if err != nil {
		return report, err
	}
	defer site.Close()
	programs, err := site.Install(ctx, config)
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(filepath.Join(programs.Dir, "bin")) // the pages are kept
	worker := programs.Worker()
	if err := worker.Start(); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, worker.Process.Signal(os.Interrupt), worker.Wait()) }()
	if err := programs.Begin(); err != nil {
		return report, err
	}
	fmt.Fprintf(out, "crawling %d pages of %d hosts; they are kept in %s\n", pages, len(crawlsite.Hosts), filepath.Join(programs.Dir, "pages"))
	if err := programs.Wait(site); err != nil {
		return report, err
	}
	report = site.Report()
	return report, show(out, report)
}

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

package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/tasks/frontier"
)

type pastSpan struct {
	Name, Text string
	span, step time.Duration
}

var pastSpans = []pastSpan{
	{"hour", "1 hour", time.Hour, time.Minute},
	{"day", "24 hours", 24 * time.Hour, 5 * time.Minute},
	{"month", "30 days", history.Reach, time.Hour},
}

type pastData struct {
	Spans  []pastSpan
	Of     pastSpan
	From   time.Time
	Curves []pastCurve
	Tasks  []pastTask // by queue and type
	Limits []pastLimit
	Ends   history.Counts
}

// Failed is how many attempts failed, for good or not.
func (d pastData) Failed() int64 { return d.Ends[history.Failed] + d.Ends[history.Archived] }

// pastCurve is a row of one number for each step.
type pastCurve struct {
	Title, Class string
	Points       string // as SVG has them
	Most, Last   string // the highest, and the last
}

type pastTask struct {
	history.Task
	Done, Failed, Archived int64
}

type pastLimit struct {
	Name            string
	Allowed, Denied int64
}

// makePast makes the view of what became of jobs: a few dozen hashes at most, read in one
// round trip.
func makePast(ctx context.Context, p *Page, s *snapshot, q url.Values) (any, error) {
	d := pastData{Spans: pastSpans, Of: pastSpans[1]}
	for _, span := range pastSpans {
		if span.Name == q.Get("past") {
			d.Of = span
		}
	}
	d.From = s.Now.Add(-d.Of.span)
	found, err := history.Past(ctx, p.Redis, p.Scope, d.From, s.Now, d.Of.step)
	if err != nil {
		return nil, err
	}
	d.sum(found)
	found = found[:len(found)-1] // the last is not over yet
	rate := func(ends ...history.End) func(history.Slice) float64 {
		return func(s history.Slice) float64 {
			counts, sum := s.Ends(), int64(0)
			for _, end := range ends {
				sum += counts[end]
			}
			return float64(sum) / d.Of.step.Seconds()
		}
	}
	wait := func(share float64) func(history.Slice) float64 {
		return func(s history.Slice) float64 {
			wait, _ := s.Waits.Quantile(share)
			return wait.Seconds()
		}
	}
	asSpan := func(seconds float64) string { return span(time.Duration(seconds * float64(time.Second))) }
	d.Curves = []pastCurve{
		newCurve("Done a second", "", found, rate(history.Done), perSecond),
		newCurve("Failed a second", "bad", found, rate(history.Failed, history.Archived), perSecond),
		newCurve("Half of those that waited did so for at most", "", found, wait(.5), asSpan),
		newCurve("99 of a hundred for at most", "", found, wait(.99), asSpan),
	}
	return d, nil
}

// sum adds up what each task and each limit did.
func (d *pastData) sum(found []history.Slice) {
	tasks, limits := map[history.Task]history.Counts{}, map[string]history.Limited{}
	for _, s := range found {
		for task, counts := range s.Tasks {
			sum := tasks[task]
			for end, n := range counts {
				sum[end] += n
				d.Ends[end] += n
			}
			tasks[task] = sum
		}
		for name, l := range s.Limits {
			sum := limits[name]
			sum.Allowed, sum.Denied = sum.Allowed+l.Allowed, sum.Denied+l.Denied
			limits[name] = sum
		}
	}
	for task, c := range tasks {
		d.Tasks = append(d.Tasks, pastTask{task, c[history.Done], c[history.Failed] + c[history.Archived], c[history.Archived]})
	}
	slices.SortFunc(d.Tasks, func(a, b pastTask) int {
		return cmp.Or(strings.Compare(a.Queue, b.Queue), strings.Compare(a.Type, b.Type))
	})
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		d.Limits = append(d.Limits, pastLimit{name, limits[name].Allowed, limits[name].Denied})
	}
}

// The size of a curve of the history, in its own units, which the template's viewBox has too.
const pastWidth, pastHeight = 600.0, 60.0

// newCurve draws a number of each slice, from 0 on.
func newCurve(title, class string, of []history.Slice, number func(history.Slice) float64, text func(float64) string) pastCurve {
	numbers := make([]float64, len(of))
	for i, s := range of {
		numbers[i] = number(s)
	}
	most := slices.Max(numbers)
	var points strings.Builder
	for i, n := range numbers {
		y := pastHeight - 1
		if most > 0 {
			y -= (pastHeight - 2) * n / most
		}
		fmt.Fprintf(&points, "%.1f,%.1f ", float64(i)*pastWidth/float64(len(numbers)-1), y)
	}
	return pastCurve{title, class, strings.TrimSpace(points.String()), text(most), text(numbers[len(numbers)-1])}
}

func makeWorkers(ctx context.Context, p *Page, _ *snapshot, _ url.Values) (any, error) {
	return history.Processes(ctx, p.Redis, p.Scope)
}

// maxCrawls bounds the crawls, and the hosts of one, that are shown.
const maxCrawls = 50

type crawlsData struct {
	Crawls []frontier.Progress
	One    string // the crawl that is asked for
	More   int    // hosts or crawls that are not shown
}

// makeCrawls makes the view of crawls, those first of which a URL was taken last: two round
// trips for each.
func makeCrawls(ctx context.Context, p *Page, _ *snapshot, q url.Values) (any, error) {
	f, d := frontier.New(p.Redis, p.Scope), crawlsData{One: q.Get("crawl")}
	names := []string{d.One}
	if d.One == "" {
		var err error
		if names, err = f.Crawls(ctx); err != nil {
			return nil, err
		}
		d.More = max(0, len(names)-maxCrawls)
		names = names[:min(len(names), maxCrawls)]
	}
	for _, name := range names {
		progress, ok, err := f.Progress(ctx, name)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if d.One != "" {
			d.More = max(0, len(progress.Hosts)-maxCrawls)
		}
		progress.Hosts = progress.Hosts[:min(len(progress.Hosts), maxCrawls)]
		d.Crawls = append(d.Crawls, progress)
	}
	return d, nil
}

package page

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/throttle"
)

// A page of the list has listPage jobs and up to as many more; with a filter it ends after a
// look at lookedAt of them, whether any was meant or not.
const (
	listPage = 20
	lookedAt = 1000
)

type listData struct {
	Tabs   []tab
	State  string // as the filter has it
	Queue  string
	Queues []string
	Words  []field // the rest of the filter, to write in
	Jobs   []listRow
	Acts   []bulk // what can be done to all of them
	// First is the address of the first page, and Next that of the next one: empty on these.
	First, Next string
	Wrong       string // what is wrong with the filter
}

type bulk struct{ Verb, To string }

// listRow is a job as the list shows it, without secrets.
type listRow struct {
	inspect.Job
	Reason string // its last error, cut
	Acts   []bulk
}

var filterHints = []string{"type", "waits for limit", "waits for key", "text in the payload", "text in the last error", "for longer than, such as 24h"}

// makeList makes the view of the jobs that a filter means. Where the filter makes no sense
// it says so and shows none.
func makeList(ctx context.Context, p *Page, s *snapshot, q url.Values) (any, error) {
	d := listData{State: visible(q.Get("state"), shortText), Queue: q.Get("queue")}
	for i, word := range filterWords[2:] {
		d.Words = append(d.Words, field{Name: word, Value: visible(q.Get(word), shortText), Hint: filterHints[i]})
	}
	if q.Get("from") != "" {
		d.First = to("jobs", pairs(q)...)
	}
	for _, queue := range s.Queues.Infos {
		d.Queues = append(d.Queues, queue.Queue)
	}
	d.count(s, q)
	f, err := filterOf(ctx, p.Limiter, q)
	if errors.Is(err, throttle.ErrUnavailable) {
		return nil, err
	}
	if f.Queue != "" && !slices.Contains(d.Queues, f.Queue) {
		return d, nil // it was deleted
	}
	if err != nil {
		d.Wrong = visible(err.Error(), 300)
		return d, nil
	}
	jobs, next, err := p.queues.Some(ctx, f, inspect.ParseMark(q.Get("from")), listPage, lookedAt)
	if err != nil {
		return nil, err
	}
	if d.Next = next.String(); d.Next != "" {
		d.Next = to("jobs", append(pairs(q), "from", d.Next)...)
	}
	of, _, _ := place("jobs", q)
	for _, job := range jobs {
		if job.Place != nil {
			job.Place = s.place(*job.Place)
		}
		row := listRow{Job: job, Reason: visible(p.redactor.text(job.LastErr[:min(len(job.LastErr), 2000)]), 200)}
		for _, name := range []string{"run", "cancel", "delete"} {
			if a := actions[name]; a.jobs.Not(job.State) == "" {
				row.Acts = append(row.Acts, bulk{a.Verb, act(name, of, "queue", job.Queue, "id", job.ID)})
			}
		}
		d.Jobs = append(d.Jobs, row)
	}
	for _, name := range jobActions {
		if a := actions[name]; len(f.States) > 0 && a.jobs.Check(f) == nil && len(jobs) > 0 {
			d.Acts = append(d.Acts, bulk{a.Verb, act(name, of, pairs(q)...)})
		}
	}
	return d, nil
}

// count fills in the tabs: with how many jobs each has in all, whatever else the filter says.
func (d *listData) count(s *snapshot, q url.Values) {
	for _, t := range tabs {
		for _, queue := range s.Queues.Infos {
			if of := q.Get("queue"); of == "" || of == queue.Queue {
				t.Count += t.of(queue)
			}
		}
		t.To, t.On = to("jobs", append(pairs(q), "state", t.States)...), q.Get("state") == t.States
		d.Tabs = append(d.Tabs, t)
	}
}

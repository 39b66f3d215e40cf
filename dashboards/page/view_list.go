package page

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

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

type tab struct {
	Name, To string
	Count    int
	On       bool
}

// jobsIn is how many jobs of a queue are in the states of each tab but the first.
func jobsIn(q inspect.QueueInfo) (list []tab) {
	for _, t := range tabs[1:] {
		list = append(list, tab{Name: t.name, To: t.states, Count: t.count(q)})
	}
	return list
}

type bulk struct{ Verb, To string }

// listRow is a job as the list shows it, without secrets.
type listRow struct {
	inspect.Job
	Reason string // its last error, cut
	Acts   []bulk
}

// tabs are the states that a list can be of, in the order of a job's life. Those that are
// called are on their way: they are among those that wait.
var tabs = []struct {
	name, states string
	count        func(inspect.QueueInfo) int
}{
	{"All", "", func(q inspect.QueueInfo) int { return q.Size + q.Completed }},
	{"Waiting", inspect.Waiting + "," + inspect.Called, func(q inspect.QueueInfo) int { return q.Waiting }},
	{"Pending", "pending", func(q inspect.QueueInfo) int { return q.Pending }},
	{"Scheduled", "scheduled", func(q inspect.QueueInfo) int { return q.Scheduled }},
	{"Running", "active", func(q inspect.QueueInfo) int { return q.Active }},
	{"Retrying", "retry", func(q inspect.QueueInfo) int { return q.Retry }},
	{"Completed", "completed", func(q inspect.QueueInfo) int { return q.Completed }},
	{"Archived", "archived", func(q inspect.QueueInfo) int { return q.Archived }},
}

// filterWords are what a filter is made of, in a query and in a form, as the flags of
// "worker jobs" have it.
var filterWords = []string{"state", "queue", "type", "limit", "key", "payload", "error", "older"}

var filterHints = []string{"type", "waits for limit", "waits for key", "text in the payload", "text in the last error", "for longer than, such as 24h"}

func filterOf(ctx context.Context, p *Page, q url.Values) (inspect.Filter, error) {
	f := inspect.Filter{
		Queue: q.Get("queue"), Type: q.Get("type"), Limit: q.Get("limit"), Key: q.Get("key"),
		Payload: q.Get("payload"), Error: q.Get("error"),
	}
	if states := q.Get("state"); states != "" {
		f.States = strings.Split(states, ",")
	}
	if older := q.Get("older"); older != "" {
		var err error
		if f.Older, err = time.ParseDuration(older); err != nil {
			return f, &throttle.FieldError{Field: "older", Value: older, Want: "want a time such as 90s, 30m or 24h"}
		}
	}
	return f, f.Check(ctx, p.Limiter)
}

func filterText(q url.Values) string {
	var words []string
	for _, word := range filterWords {
		if value := q.Get(word); value != "" {
			words = append(words, word+" "+value)
		}
	}
	return strings.Join(words, ", ")
}

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
	f, err := filterOf(ctx, p, q)
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
			where := s.place(*job.Place)
			job.Place = &where
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

func pairs(q url.Values) (list []string) {
	for _, word := range filterWords {
		if value := q.Get(word); value != "" {
			list = append(list, word, value)
		}
	}
	return list
}

// count fills in the tabs: with how many jobs each has in all, whatever else the filter says.
func (d *listData) count(s *snapshot, q url.Values) {
	for _, t := range tabs {
		n := 0
		for _, queue := range s.Queues.Infos {
			if of := q.Get("queue"); of == "" || of == queue.Queue {
				n += t.count(queue)
			}
		}
		other := url.Values{}
		for _, word := range filterWords {
			other.Set(word, q.Get(word))
		}
		other.Set("state", t.states)
		d.Tabs = append(d.Tabs, tab{t.name, to("jobs", pairs(other)...), n, q.Get("state") == t.states})
	}
}

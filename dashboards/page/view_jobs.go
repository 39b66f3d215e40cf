package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// How many lanes and jobs one page shows. Redis does nothing else while it works out the
// places of a page of jobs, so these are small.
const (
	lanesPage = 25
	jobsPage  = 20
)

// waitingData is the lanes, or one lane's jobs where Lane is not nil.
type waitingData struct {
	Lanes []laneRow    // in the order in which they came
	Lane  *waitdb.Lane // whose Called is not counted
	Jobs  []jobRow     // the next to be called first
	Pages pages        // of lanes, or of the lane's jobs
}

type laneRow struct {
	waitdb.Lane
	// First is the next to be called; nil where all of the lane's jobs are called.
	First *jobRow
}

// jobRow is a waiting job and where it stands. Its times are as of when it was read,
// which may be a turn or two before the snapshot beside it.
type jobRow struct {
	throttle.JobID
	waitdb.Position
}

// makeWaiting makes the view of what waits: a page of lanes, each with its first job,
// whose place says when the lane goes on; or one lane that the query names. It takes two
// round trips, one for each lane of the page, and one for all their first jobs.
func makeWaiting(ctx context.Context, p *Page, s *snapshot, at place) (any, error) {
	if name := at.Get("lane"); name != "" {
		return laneOf(ctx, p, s, name, at)
	}
	d := waitingData{Pages: newPages(at, lanesPage)}
	lanes, total, err := p.queues.Limiter.LanesFrom(ctx, d.Pages.offset(), lanesPage)
	if err != nil {
		return nil, err
	}
	d.Pages.Total = total
	var firsts []throttle.JobID
	for _, lane := range lanes {
		first, _, err := p.queues.Limiter.Jobs(ctx, lane.Name, 0, 1)
		if err != nil {
			return nil, err
		}
		firsts = append(firsts, first...)
		d.Lanes = append(d.Lanes, laneRow{Lane: lane})
	}
	jobs, err := s.rows(ctx, p, firsts)
	for i := range jobs {
		of := slices.IndexFunc(d.Lanes, func(lane laneRow) bool { return lane.Name == jobs[i].Lane.Name })
		if of >= 0 {
			d.Lanes[of].First = &jobs[i]
		}
	}
	return d, err
}

// laneOf is a page of a lane's jobs, in two round trips. One that has gone meanwhile has
// none, and so has a name that somebody has made up: it only becomes a part of a key that
// is read. A job that started between the two is left out.
func laneOf(ctx context.Context, p *Page, s *snapshot, name string, at place) (any, error) {
	d := waitingData{Pages: newPages(at, jobsPage)}
	lane := waitdb.NewLane(name)
	d.Lane = &lane
	jobs, total, err := p.queues.Limiter.Jobs(ctx, name, d.Pages.offset(), jobsPage)
	if err != nil {
		return nil, err
	}
	d.Pages.Total, d.Lane.Waiting = total, total
	d.Jobs, err = s.rows(ctx, p, jobs)
	return d, err
}

// rows are those of the jobs that wait still, in their order.
func (s *snapshot) rows(ctx context.Context, p *Page, jobs []throttle.JobID) (rows []jobRow, err error) {
	places, err := p.queues.Limiter.Positions(ctx, jobs...)
	for _, job := range jobs {
		if place, ok := places[job]; ok {
			rows = append(rows, jobRow{job, *s.place(place)})
		}
	}
	return rows, err
}

// jobData is one job, as asynq and the limiter know it.
type jobData struct {
	ID, Queue   string // as they were asked for
	inspect.Job        // without a TaskInfo where there is no such job
	Acts        []bulk // what can be done to it
	// Failures counts attempts that failed. Denials are none of them.
	Failures int
	// Attempts are the last that ended, once one has failed; Crashes how often the worker
	// died beside them.
	Attempts []asynqdb.Attempt
	Crashes  int
	// PutBack is whether what asynq has for the last failure is none: a denial, or what the
	// handler put it back for.
	PutBack bool
}

// makeJob makes the view of one job, of any state. asynq's retry set holds jobs that
// failed and jobs that were denied; the limiter knows which of them wait. Both are
// asked, two round trips and one, and not in one step: a job that starts in between is
// shown as it was a moment ago. One that is gone is a page that says so and no error,
// since a viewer may look on while it ends.
func makeJob(ctx context.Context, p *Page, s *snapshot, at place) (any, error) {
	d := jobData{ID: at.Get("id"), Queue: at.Get("queue")}
	job, err := p.queues.Job(ctx, throttle.JobID{Queue: d.Queue, ID: d.ID})
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || d.Queue == "" {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.Job = job
	// asynq counts retries, of which a denial is none.
	d.Failures = job.Retried
	if job.State == "archived" && job.LastErr != "" {
		d.Failures++ // the last failure archived it
	}
	d.PutBack = d.Failures == 0 || strings.HasPrefix(job.LastErr, "denied by ")
	if job.Position != nil {
		d.Position = s.place(*job.Position)
	}
	if d.Attempts, d.Crashes, err = p.queues.DB.Attempts(ctx, job.Queue, job.ID); err != nil {
		return nil, err
	}
	d.Acts = actsOn(job, at.text, jobActions...)
	return d, nil
}

// found is what a search has found: of limits and keys those of which the text is a
// part, of jobs those whose ID it is.
type found struct {
	Query  string
	Jobs   []inspect.Job   // of this ID
	Limits []string        // what is waited for most first
	Keys   []waitdb.Demand // the most wanted first
	More   int             // keys that are not shown
}

// maxFound bounds the keys that a search shows, the most wanted first: a letter may be
// in a million of them.
const maxFound = 50

// serveFind finds a job by its ID, and limits and keys by a part of their names.
// Where only one thing is meant it goes there: a job that is in one queue, or a limit
// by its whole name. Of keys it knows those that anything waits for. What it shows does
// not change by itself, and each search reads for itself, jobs from asynq and all else
// from the snapshot. A text is a quarter of maxQuery at most, as links to what was
// found have it escaped, three bytes for one; a longer one leads to the first view.
func (p *Page) serveFind(w http.ResponseWriter, r *http.Request) {
	f := found{Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	if f.Query == "" || len(f.Query) > maxQuery/4 {
		redirect(w, "./")
		return
	}
	var err error
	if f.Jobs, err = p.queues.FindByID(r.Context(), f.Query, ""); err != nil {
		p.failRead(w, err)
		return
	}
	// An ID is meant before a limit of the same name: who has one has copied it whole.
	if len(f.Jobs) == 1 {
		redirect(w, to("job", "queue", f.Jobs[0].Queue, "id", f.Query))
		return
	}
	s := p.reader.latest(r.Context())
	for _, row := range s.Limits {
		if row.Name == f.Query {
			redirect(w, to("", "open", row.Name))
			return
		}
		if strings.Contains(row.Name, f.Query) {
			f.Limits = append(f.Limits, row.Name)
		}
		for _, k := range s.wants[row.Name] {
			if strings.Contains(k.Key, f.Query) {
				f.Keys = append(f.Keys, k)
			}
		}
	}
	slices.SortStableFunc(f.Keys, func(a, b waitdb.Demand) int { return cmp.Compare(b.Permits, a.Permits) })
	f.More = max(0, len(f.Keys)-maxFound)
	f.Keys = f.Keys[:min(len(f.Keys), maxFound)]
	p.write(w, http.StatusOK, "find", frame{Page: p, Title: "Search", Snap: s, Data: f})
}

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

// actsOn are those of the actions that can be done to a job, asked for from a place.
func actsOn(job inspect.Job, of string, names ...string) (acts []bulk) {
	for _, name := range names {
		if a := actions[name]; a.jobs.Excludes(job.State) == "" {
			acts = append(acts, bulk{a.Verb, act(name, of, "queue", job.Queue, "id", job.ID)})
		}
	}
	return acts
}

type listRow struct {
	inspect.Job
	Acts []bulk
}

var filterHints = []string{"type", "waits for limit", "waits for key", "text in the payload", "text in the last error", "for longer than, such as 24h"}

// makeList makes the view of the jobs that a filter means. Where the filter makes no sense
// it says so and shows none.
func makeList(ctx context.Context, p *Page, s *snapshot, at place) (any, error) {
	d := listData{State: display.Visible(at.Get("state"), shortText), Queue: at.Get("queue")}
	for i, word := range filterWords[2:] {
		d.Words = append(d.Words, field{Name: word, Value: display.Visible(at.Get(word), shortText), Hint: filterHints[i]})
	}
	if at.Get("from") != "" {
		d.First = to("jobs", pairs(at.Values)...)
	}
	for _, queue := range s.Queues.Infos {
		d.Queues = append(d.Queues, queue.Queue)
	}
	d.count(s, at.Values)
	f, err := filterOf(ctx, p.queues.Limiter, at.Values)
	if errors.Is(err, throttle.ErrUnavailable) {
		return nil, err
	}
	if f.Queue != "" && !slices.Contains(d.Queues, f.Queue) {
		return d, nil // it was deleted
	}
	if err != nil {
		d.Wrong = display.Visible(err.Error(), 300)
		return d, nil
	}
	jobs, next, err := p.queues.ListPage(ctx, f, inspect.ParseCursor(at.Get("from")), listPage, lookedAt)
	if err != nil {
		return nil, err
	}
	if d.Next = next.String(); d.Next != "" {
		d.Next = to("jobs", append(pairs(at.Values), "from", d.Next)...)
	}
	for _, job := range jobs {
		if job.Position != nil {
			job.Position = s.place(*job.Position)
		}
		d.Jobs = append(d.Jobs, listRow{job, actsOn(job, at.text, "run", "cancel", "delete")})
	}
	for _, name := range jobActions {
		if a := actions[name]; len(f.States) > 0 && a.jobs.Validate(f) == nil && len(jobs) > 0 {
			d.Acts = append(d.Acts, bulk{a.Verb, act(name, at.text, pairs(at.Values)...)})
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

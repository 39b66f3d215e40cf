package page

import (
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

const (
	lanesPage = 25
	// A page of the list of jobs has jobsPage jobs, or up to twice as many. It ends after maxRead
	// jobs, whether they match the filter or not.
	jobsPage = 20
	maxRead  = 1000
)

// waitingData is a page of lanes.
type waitingData struct {
	Lanes []laneRow
	Pages pages
}

type laneRow struct {
	waitdb.Lane
	Jobs string           // address of its jobs
	Next *waitdb.Position // position of the lane's first job; nil if that job no longer waits
}

func loadWaiting(ctx context.Context, p *Page, s *snapshot, at address) (any, error) {
	var d waitingData
	page, total := pageNumber(at), 0
	for _, in := range p.queues.Scopes() {
		lanes, n, err := in.Limiter.LanesFrom(ctx, max(0, page*lanesPage-total), lanesPage-len(d.Lanes))
		if err != nil {
			return nil, err
		}
		total += n
		firsts := make([]throttle.JobID, len(lanes))
		for i, lane := range lanes {
			firsts[i] = lane.First
		}
		positions, err := in.Limiter.Positions(ctx, firsts...)
		if err != nil {
			return nil, err
		}
		for _, lane := range lanes {
			limit, key, _ := strings.Cut(lane.Meters[0], "|")
			queue := p.queues.Sharded.QueueOf(lane.Queue)
			row := laneRow{Lane: lane, Jobs: to("jobs", "state", tabs[1].States, "queue", queue, "limit", limit, "key", key)}
			if position, ok := positions[row.First]; ok {
				row.Next = new(s.Position(position))
			}
			d.Lanes = append(d.Lanes, row)
		}
	}
	d.Pages = newPages(at, page, lanesPage, total)
	return d, nil
}

type jobData struct {
	ID, Queue   string // as the address names them
	inspect.Job        // without a TaskInfo if there is no such job
	Failures    int
	// Attempts are the job's last attempts. Crashes is the number of crashes of its workers that did
	// not count as failures: see asynqdb.DB.Attempts.
	Attempts []asynqdb.Attempt
	Crashes  int
	// PutBack reports whether the last error is a denial, or the handler put the job back.
	PutBack bool
}

func loadJob(ctx context.Context, p *Page, s *snapshot, at address) (any, error) {
	d := jobData{ID: at.Get("id"), Queue: at.Get("queue")}
	job, err := p.queues.Job(ctx, throttle.JobID{Queue: d.Queue, ID: d.ID})
	if errors.Is(err, asynq.ErrTaskNotFound) || errors.Is(err, asynq.ErrQueueNotFound) || d.Queue == "" {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.Job = job
	d.Failures = job.Retried
	if job.State == "archived" && job.LastErr != "" {
		d.Failures++ // asynq does not count the failure that archived it
	}
	d.PutBack = d.Failures == 0 || strings.HasPrefix(job.LastErr, "denied by ")
	if job.Position != nil {
		d.Position = new(s.Position(*job.Position))
	}
	d.Attempts, d.Crashes, err = p.queues.DB.Attempts(ctx, job.Queue, job.ID)
	return d, err
}

// serveFind redirects to what the text names: the ID of a job, a limit, or a key for which jobs
// wait.
func (p *Page) serveFind(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if text == "" || len(text) > maxQuery/4 { // the encoding of an address can triple it
		redirect(w, "./")
		return
	}
	jobs, err := p.queues.FindByID(r.Context(), text, "")
	if err != nil {
		p.failRead(w, err)
		return
	}
	if len(jobs) > 0 {
		redirect(w, to("job", "queue", jobs[0].Queue, "id", text))
		return
	}
	s := p.reader.latest(r.Context())
	for _, row := range s.Limits {
		if row.Name == text {
			redirect(w, to("", "open", row.Name))
			return
		}
		if slices.ContainsFunc(s.Demand[row.Name], func(d waitdb.Demand) bool { return d.Key == text }) {
			redirect(w, to("", "open", row.Name, "q", text))
			return
		}
	}
	p.fail(w, http.StatusNotFound, "There is no job with the ID "+short(text)+", no limit with that name, and no job that waits for that key. A job may have finished without retention, or been deleted.")
}

type jobsData struct {
	Tabs        []tab
	State       string // of the filter
	Queue       string
	Queues      []string
	Fields      []field // the remaining fields of the filter
	Jobs        []inspect.Job
	First, Next string // addresses; empty on the first and the last page
	Wrong       string // an error of the filter
}

// tab is a link to the jobs in some states.
type tab struct {
	Name, States string
	To           string
	Count        int
	On           bool
}

var tabs = []tab{
	{Name: "All"},
	{Name: "Waiting", States: inspect.Waiting + "," + inspect.Granted},
	{Name: "Pending", States: "pending"},
	{Name: "Scheduled", States: "scheduled"},
	{Name: "Running", States: "active"},
	{Name: "Retrying", States: "retry"},
	{Name: "Completed", States: "completed"},
	{Name: "Archived", States: "archived"},
}

var filterHints = []string{"type", "waits for limit", "waits for key", "text in the payload", "text in the last error", "for longer than, such as 24h"}

func loadJobs(ctx context.Context, p *Page, s *snapshot, at address) (any, error) {
	d := jobsData{State: display.Visible(at.Get("state"), shortText), Queue: at.Get("queue"), Tabs: loadTabs(s, at.Values)}
	for i, name := range filterNames[2:] {
		d.Fields = append(d.Fields, field{Name: name, Value: display.Visible(at.Get(name), shortText), Hint: filterHints[i]})
	}
	if at.Get("from") != "" {
		d.First = to("jobs", filterPairs(at.Values)...)
	}
	for _, queue := range s.Queues {
		d.Queues = append(d.Queues, queue.Queue)
	}
	f, err := newFilter(ctx, p.queues, at.Values)
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
	jobs, next, err := p.queues.ListPage(ctx, f, inspect.ParseCursor(at.Get("from")), jobsPage, maxRead)
	if err != nil {
		return nil, err
	}
	if d.Next = next.String(); d.Next != "" {
		d.Next = to("jobs", append(filterPairs(at.Values), "from", d.Next)...)
	}
	for i, job := range jobs {
		if job.Position != nil {
			jobs[i].Position = new(s.Position(*job.Position))
		}
	}
	d.Jobs = jobs
	return d, nil
}

// loadTabs counts the jobs of each tab in the filter's queue, whatever else the filter has.
func loadTabs(s *snapshot, q url.Values) (list []tab) {
	for _, t := range tabs {
		for _, queue := range s.Queues {
			switch of := q.Get("queue"); {
			case of != "" && of != queue.Queue:
			case t.States == "":
				t.Count += queue.Size
			default:
				t.Count += queue.Count(strings.Split(t.States, ",")...)
			}
		}
		t.To, t.On = to("jobs", append(filterPairs(q), "state", t.States)...), q.Get("state") == t.States
		list = append(list, t)
	}
	return list
}

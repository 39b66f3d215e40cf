package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
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
			row := laneRow{Lane: lane, Jobs: to("jobs", "state", waitingStates, "queue", p.queues.Sharded.QueueOf(lane.Queue), "limit", limit, "key", key)}
			if position, ok := positions[row.First]; ok {
				row.Next = &position
				s.SetEstimate(row.Next)
			}
			d.Lanes = append(d.Lanes, row)
		}
	}
	d.Pages = newPages(at, page, lanesPage, total)
	return d, nil
}

type jobData struct {
	ID, Queue   string // as the address names them
	inspect.Job        // its TaskInfo is nil if there is no such job
	Failures    int
	// Attempts are the job's last attempts. Crashes is the number of its attempts whose worker
	// crashed: see asynqdb.DB.Attempts.
	Attempts []asynqdb.Attempt
	Crashes  int
	PutBack  bool // LastErr tells why the job was put back, and is no failure
}

func loadJob(ctx context.Context, p *Page, s *snapshot, at address) (any, error) {
	d := jobData{ID: at.Get("id"), Queue: at.Get("queue")}
	job, err := p.queues.Job(ctx, throttle.JobID{Queue: d.Queue, ID: d.ID})
	if inspect.IsGone(err) || d.Queue == "" {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	d.Job, d.Failures = job, job.Retried
	if job.State == "archived" && job.LastErr != "" {
		d.Failures++ // asynq does not count the failure that archived it
	}
	d.PutBack = d.Failures == 0 || strings.HasPrefix(job.LastErr, "denied by ")
	s.SetEstimate(job.Position)
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
			redirect(w, to("", "open", text))
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
	Name, To string
	Count    int
	On       bool
}

const waitingStates = inspect.Waiting + "," + inspect.Granted

// tabStates are the names of the tabs, each with its states.
var tabStates = [][2]string{
	{"All", ""},
	{"Waiting", waitingStates},
	{"Pending", "pending"},
	{"Scheduled", "scheduled"},
	{"Running", "active"},
	{"Retrying", "retry"},
	{"Completed", "completed"},
	{"Archived", "archived"},
}

// filterFields are the text fields of a filter. They, "state" and "queue" are named like the flags
// of "worker jobs".
var filterFields = []field{
	{Name: "type", Hint: "type"},
	{Name: "limit", Hint: "waits for limit"},
	{Name: "key", Hint: "waits for key"},
	{Name: "payload", Hint: "text in the payload"},
	{Name: "error", Hint: "text in the last error"},
	{Name: "older", Hint: "for longer than, such as 24h"},
}

func loadJobs(ctx context.Context, p *Page, s *snapshot, at address) (any, error) {
	d := jobsData{State: display.Visible(at.Get("state"), shortText), Queue: at.Get("queue")}
	filter := []string{"state", at.Get("state"), "queue", d.Queue}
	for _, f := range filterFields {
		filter = append(filter, f.Name, at.Get(f.Name))
		f.Value = display.Visible(at.Get(f.Name), shortText)
		d.Fields = append(d.Fields, f)
	}
	with := func(name, value string) string { return to("jobs", append(slices.Clone(filter), name, value)...) }
	for _, t := range tabStates {
		d.Tabs = append(d.Tabs, tab{t[0], with("state", t[1]), countJobs(s, d.Queue, t[1]), at.Get("state") == t[1]})
	}
	if at.Get("from") != "" {
		d.First = to("jobs", filter...)
	}
	for _, queue := range s.Queues {
		d.Queues = append(d.Queues, queue.Queue)
	}
	f, err := newFilter(at.Values)
	if err == nil {
		err = f.Validate(ctx, p.queues)
	}
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
	var next inspect.Cursor
	if d.Jobs, next, err = p.queues.ListPage(ctx, f, inspect.ParseCursor(at.Get("from")), jobsPage, maxRead); err != nil {
		return nil, err
	}
	if next != (inspect.Cursor{}) {
		d.Next = with("from", next.String())
	}
	for _, job := range d.Jobs {
		s.SetEstimate(job.Position)
	}
	return d, nil
}

func countJobs(s *snapshot, queueName, states string) (n int) {
	for _, queue := range s.Queues {
		switch {
		case queueName != "" && queueName != queue.Queue:
		case states == "":
			n += queue.Size
		default:
			n += queue.Count(strings.Split(states, ",")...)
		}
	}
	return n
}

func newFilter(q url.Values) (f inspect.Filter, err error) {
	f = inspect.Filter{
		Queue: q.Get("queue"), Type: q.Get("type"), Limit: q.Get("limit"), Key: q.Get("key"),
		Payload: q.Get("payload"), Error: q.Get("error"),
	}
	if states := q.Get("state"); states != "" {
		f.States = strings.Split(states, ",")
	}
	if older := q.Get("older"); older != "" {
		if f.OlderThan, err = duration.Parse(older); err != nil {
			err = &throttle.FieldError{Field: "older", Value: older, Want: "want a duration such as 90s, 24h or 7d"}
		}
	}
	return f, err
}

package results

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/cli"
)

// Result is what a job brought home, in JSON.
type Result struct {
	ID         string      `json:"id"`
	Queue      string      `json:"queue"`
	Type       string      `json:"type"`
	State      string      `json:"state"`
	Ended      time.Time   `json:"ended"`
	Error      string      `json:"error,omitempty"`
	Result     *cli.Text   `json:"result,omitempty"` // of another type than http:request
	Status     int         `json:"status,omitempty"`
	URL        string      `json:"url,omitempty"`
	Headers    http.Header `json:"headers,omitempty"`
	Body       *cli.Text   `json:"body,omitempty"`
	Truncated  bool        `json:"truncated,omitempty"`
	Length     *int64      `json:"length,omitempty"`
	Saved      string      `json:"saved,omitempty"`
	SHA256     string      `json:"sha256,omitempty"`
	DurationMS int64       `json:"duration_ms,omitempty"`

	answer Answer
}

// New is the result of a job that has ended.
func New(job *asynq.TaskInfo) Result {
	r := Result{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State.String(), Ended: job.CompletedAt,
		answer: ParseAnswer(job.Type, job.Result),
	}
	if job.State == asynq.TaskStateArchived {
		r.Ended, r.Error = job.LastFailedAt, job.LastErr
	}
	body, call := cli.Text(r.answer.body), r.answer.call
	if call == nil {
		r.Result = &body
		return r
	}
	r.Status, r.URL, r.Headers, r.Body = call.Status, call.URL, call.Headers, &body
	r.Truncated, r.Length, r.Saved, r.SHA256, r.DurationMS = call.Truncated, &call.Length, call.Saved, call.SHA256, call.DurationMS
	return r
}

func (r Result) line() string {
	what := "result"
	if r.answer.call != nil {
		what = r.answer.status()
	}
	text := strings.TrimSpace(string(r.answer.body))
	if r.Saved != "" {
		text = "saved: " + r.Saved
	}
	if len(r.answer.body) == 0 && r.Saved == "" && r.Error != "" {
		what, text = "no answer", r.Error
	}
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s", r.Ended.Local().Format(time.DateTime), cli.Cell(r.ID), what, cli.Cell(text)), " ")
}

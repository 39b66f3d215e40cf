package results

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/tasks"
)

// Result is what a job brought home, in JSON.
type Result struct {
	ID         string      `json:"id"`
	Queue      string      `json:"queue"`
	Type       string      `json:"type"`
	Payload    cli.Text    `json:"payload"` // without secrets
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

// New is the result of a job that has ended, with its payload as secrets lets it be shown.
func New(job *asynq.TaskInfo, secrets redact.Redactor) Result {
	r := Result{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State.String(), Ended: job.CompletedAt,
		Payload: cli.Text(secrets.Payload(job.Payload)),
		answer:  ParseAnswer(job.Type, job.Result),
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
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s  %s  %s", r.Ended.Local().Format(time.DateTime), cli.Cell(r.ID), cli.Cell(r.Type), cli.Cell(string(r.Payload)), what, cli.Cell(text)), " ")
}

// Answer is the result of a job: of an http:request the last answer to its call,
// of any other type what its handler wrote.
type Answer struct {
	call *tasks.HTTPResult // nil for another type
	body []byte
}

// ParseAnswer reads a result. One that is not as it should be is taken as it is.
func ParseAnswer(taskType string, result []byte) Answer {
	if taskType != tasks.TypeHTTPRequest {
		return Answer{body: result}
	}
	var call tasks.HTTPResult
	if err := json.Unmarshal(result, &call); err != nil {
		return Answer{body: result}
	}
	body := []byte(call.Body)
	if call.Base64 {
		decoded, err := base64.StdEncoding.DecodeString(call.Body)
		if err != nil {
			return Answer{body: result}
		}
		body = decoded
	}
	return Answer{&call, body}
}

// Lines is an answer for people.
func (a Answer) Lines() [][2]string {
	if a.call == nil {
		return [][2]string{{"result", string(a.body)}}
	}
	lines := [][2]string{{"answer", a.status()}, {"url", a.call.URL}, {"saved", a.call.Saved}}
	for _, name := range slices.Sorted(maps.Keys(a.call.Headers)) {
		lines = append(lines, [2]string{"header", name + ": " + strings.Join(a.call.Headers[name], ", ")})
	}
	return append(lines, [2]string{"body", string(a.body)})
}

func (a Answer) status() string {
	took := time.Duration(a.call.DurationMS) * time.Millisecond
	text := fmt.Sprintf("%d %s in %s", a.call.Status, http.StatusText(a.call.Status), duration.Text(took))
	switch {
	case a.call.Truncated && a.call.Length >= 0:
		return fmt.Sprintf("%s, the first %d of %d bytes", text, len(a.body), a.call.Length)
	case a.call.Truncated:
		return fmt.Sprintf("%s, the first %d bytes", text, len(a.body))
	case a.call.Saved == "":
		return fmt.Sprintf("%s, %d bytes", text, len(a.body))
	}
	return fmt.Sprintf("%s, %d bytes", text, a.call.Length)
}

// extensions are those of files with bodies of some types. Others have none.
var extensions = map[string]string{
	"text/html": ".html", "application/xhtml+xml": ".html", "text/plain": ".txt", "text/css": ".css", "text/csv": ".csv",
	"text/xml": ".xml", "application/xml": ".xml", "application/json": ".json", "application/javascript": ".js", "text/javascript": ".js",
	"application/pdf": ".pdf", "application/zip": ".zip", "application/x-gzip": ".gz",
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
}

// extension is what the name of a file with the body ends in: by the Content-Type, where that
// was kept, else by how the body begins.
func (a Answer) extension() string {
	if a.call != nil {
		for name, values := range a.call.Headers {
			if kind, _, err := mime.ParseMediaType(strings.Join(values, ",")); err == nil && strings.EqualFold(name, "Content-Type") {
				return extensions[kind]
			}
		}
	}
	if json.Valid(a.body) {
		return ".json"
	}
	kind, _, _ := strings.Cut(http.DetectContentType(a.body), ";")
	return extensions[kind]
}

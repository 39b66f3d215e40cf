// Package results prints the results of jobs, or writes them to files.
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

// Result is the result of a job that has ended, in JSON.
type Result struct {
	ID      string    `json:"id"`
	Queue   string    `json:"queue"`
	Type    string    `json:"type"`
	Payload cli.Text  `json:"payload"` // without secrets
	State   string    `json:"state"`
	Ended   time.Time `json:"ended"`
	Error   string    `json:"error,omitempty"`
	Result  *cli.Text `json:"result,omitempty"` // of another type than http:request
	Body    *cli.Text `json:"body,omitempty"`   // of an http:request
	*tasks.HTTPResult

	answer Answer
}

// New returns the result of a job that has ended, without the secrets of its payload.
func New(job *asynq.TaskInfo, secrets redact.Redactor) Result {
	r := Result{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State.String(), Ended: job.CompletedAt,
		Payload: cli.Text(secrets.Payload(job.Payload)),
		answer:  ParseAnswer(job.Type, job.Result),
	}
	if job.State == asynq.TaskStateArchived {
		r.Ended, r.Error = job.LastFailedAt, job.LastErr
	}
	body := cli.Text(r.answer.body)
	if r.HTTPResult = r.answer.call; r.HTTPResult == nil {
		r.Result = &body
	} else {
		r.Body = &body
	}
	return r
}

func (r Result) line() string {
	what, text := "result", strings.TrimSpace(string(r.answer.body))
	if r.HTTPResult != nil {
		what = r.answer.status()
		if r.Saved != "" {
			text = "saved: " + r.Saved
		}
	}
	if text == "" && r.Error != "" {
		what, text = "no answer", r.Error
	}
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s  %s  %s", r.Ended.Local().Format(time.DateTime), cli.Cell(r.ID), cli.Cell(r.Type), cli.Cell(string(r.Payload)), what, cli.Cell(text)), " ")
}

// Answer is the result that a job's handler wrote. For an http:request it has the last response.
type Answer struct {
	call *tasks.HTTPResult // nil for other types
	body []byte
}

// ParseAnswer reads a result. A malformed answer is its own body.
func ParseAnswer(taskType string, result []byte) Answer {
	var call tasks.HTTPResult
	if taskType != tasks.TypeHTTPRequest || json.Unmarshal(result, &call) != nil {
		return Answer{body: result}
	}
	body := []byte(call.Body)
	if call.Base64 {
		call.Base64 = false
		var err error
		if body, err = base64.StdEncoding.DecodeString(call.Body); err != nil {
			return Answer{body: result}
		}
	}
	return Answer{&call, body}
}

// Lines returns the names and values of an answer, for [cli.Fields].
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
	length := fmt.Sprintf("%d bytes", len(a.body))
	switch {
	case a.call.Truncated && a.call.Length >= 0:
		length = fmt.Sprintf("the first %d of %d bytes", len(a.body), a.call.Length)
	case a.call.Truncated:
		length = "the first " + length
	case a.call.Saved != "":
		length = fmt.Sprintf("%d bytes", a.call.Length)
	}
	took := duration.Text(time.Duration(a.call.DurationMS) * time.Millisecond)
	return fmt.Sprintf("%d %s in %s, %s", a.call.Status, http.StatusText(a.call.Status), took, length)
}

// extensions are the file extensions of media types. Other types have none.
var extensions = map[string]string{
	"text/html": ".html", "application/xhtml+xml": ".html", "text/plain": ".txt", "text/css": ".css", "text/csv": ".csv",
	"text/xml": ".xml", "application/xml": ".xml", "application/json": ".json", "application/javascript": ".js", "text/javascript": ".js",
	"application/pdf": ".pdf", "application/zip": ".zip", "application/x-gzip": ".gz",
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
}

// extension returns the file extension for the kept Content-Type. If there is none, it guesses the type
// from the body.
func (a Answer) extension() string {
	guess := http.DetectContentType(a.body)
	if json.Valid(a.body) {
		guess = "application/json"
	}
	if a.call != nil {
		if kind, _, err := mime.ParseMediaType(http.Header(a.call.Headers).Get("Content-Type")); err == nil {
			guess = kind
		}
	}
	kind, _, _ := mime.ParseMediaType(guess)
	return extensions[kind]
}

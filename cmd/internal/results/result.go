// Package results prints the results of jobs, or writes them to files.
package results

import (
	"cmp"
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

// Answer is what a job's handler wrote as its result: for an http:request the last answer to its
// call.
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

// extensions are the file extensions of media types. Other types have none.
var extensions = map[string]string{
	"text/html": ".html", "application/xhtml+xml": ".html", "text/plain": ".txt", "text/css": ".css", "text/csv": ".csv",
	"text/xml": ".xml", "application/xml": ".xml", "application/json": ".json", "application/javascript": ".js", "text/javascript": ".js",
	"application/pdf": ".pdf", "application/zip": ".zip", "application/x-gzip": ".gz",
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg",
}

// extension is that of the kept Content-Type. Without one it is guessed from the body.
func (a Answer) extension() string {
	guess := http.DetectContentType(a.body)
	if json.Valid(a.body) {
		guess = "application/json"
	}
	if a.call != nil {
		for name, values := range a.call.Headers {
			if kind, _, err := mime.ParseMediaType(strings.Join(values, ",")); err == nil && strings.EqualFold(name, "Content-Type") {
				guess = cmp.Or(kind, guess)
			}
		}
	}
	kind, _, _ := strings.Cut(guess, ";")
	return extensions[kind]
}

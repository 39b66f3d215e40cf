// Package results has the results of jobs as commands print them.
package results

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/tasks"
)

// Result is the result of a job that has ended, in JSON.
type Result struct {
	ID      string      `json:"id"`
	Queue   string      `json:"queue"`
	Type    string      `json:"type"`
	Payload cli.Value   `json:"payload"`      // its secrets are hidden
	Row     jobspec.Row `json:"row,omitzero"` // from which "enqueue" made the job; its secrets are hidden
	State   string      `json:"state"`
	Ended   time.Time   `json:"ended"`
	Error   string      `json:"error,omitempty"`
	Result  *cli.Value  `json:"result,omitempty"` // what the handler wrote; nil if HTTPResult is set
	Body    *cli.Value  `json:"body,omitempty"`   // the response's body; nil if HTTPResult is nil
	*tasks.HTTPResult

	Response Response `json:"-"` // for people
}

// New returns the result of a job. The redactor hides secrets of the payload.
func New(job inspect.Job, secrets redact.Redactor) Result {
	r := Result{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State, Ended: job.Since,
		Payload:  cli.Value(secrets.Payload(job.Payload)),
		Response: ParseResponse(job.Type, job.Result), Row: jobspec.RowOf(job.Headers),
	}
	for i, column := range r.Row.Columns {
		text := secrets.Text(r.Row.Values[i])
		if text != "" && secrets.Hides(column) {
			text = redact.Hidden
		}
		r.Row.Values[i] = text
	}
	if job.State == "archived" {
		r.Error = job.LastErr
	}
	body := cli.Value(r.Response.Body)
	if r.HTTPResult = r.Response.httpResult; r.HTTPResult == nil {
		r.Result = &body
	} else {
		r.Body = &body
	}
	return r
}

// Line returns the result as one line of text.
func (r Result) Line() string {
	what, text := "result", strings.TrimSpace(string(r.Response.Body))
	if r.HTTPResult != nil {
		what = r.Response.status()
		if r.Saved != "" {
			text = "saved: " + r.Saved
		}
	}
	if text == "" && r.Error != "" {
		what, text = "no response", r.Error
	}
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s  %s  %s", cli.DateTime(r.Ended), cli.Cell(r.ID), cli.Cell(r.Type), cli.Cell(string(r.Payload)), what, cli.Cell(text)), " ")
}

// Response is the result that a job's handler wrote. For an http:request it is the response to the
// last run.
type Response struct {
	httpResult *tasks.HTTPResult // nil if the result is no HTTPResult of an http:request
	Body       []byte
}

// ParseResponse parses a result. A result that is no HTTPResult becomes the body.
func ParseResponse(taskType string, result []byte) Response {
	var call tasks.HTTPResult
	if taskType != tasks.TypeHTTPRequest || json.Unmarshal(result, &call) != nil {
		return Response{Body: result}
	}
	body := []byte(call.Body)
	if call.Base64 {
		call.Base64 = false
		var err error
		if body, err = base64.StdEncoding.DecodeString(call.Body); err != nil {
			return Response{Body: result}
		}
	}
	return Response{&call, body}
}

// Lines returns the names and values of a response, for [cli.Fields].
func (r Response) Lines() [][2]string {
	if r.httpResult == nil {
		return [][2]string{{"result", string(r.Body)}}
	}
	lines := [][2]string{{"response", r.status()}, {"url", r.httpResult.URL}, {"saved", r.httpResult.Saved}}
	for _, name := range slices.Sorted(maps.Keys(r.httpResult.Headers)) {
		lines = append(lines, [2]string{"header", name + ": " + strings.Join(r.httpResult.Headers[name], ", ")})
	}
	return append(lines, [2]string{"body", string(r.Body)})
}

func (r Response) status() string {
	length := fmt.Sprintf("%d bytes", len(r.Body))
	switch {
	case r.httpResult.Truncated && r.httpResult.Length >= 0:
		length = fmt.Sprintf("the first %d of %d bytes", len(r.Body), r.httpResult.Length)
	case r.httpResult.Truncated:
		length = "the first " + length
	case r.httpResult.Saved != "":
		length = fmt.Sprintf("%d bytes", r.httpResult.Length)
	}
	took := duration.Text(time.Duration(r.httpResult.DurationMS) * time.Millisecond)
	return fmt.Sprintf("%d %s in %s, %s", r.httpResult.Status, http.StatusText(r.httpResult.Status), took, length)
}

// Package results prints the results of jobs, or writes them to files.
package results

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
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

	response Response
}

// New returns the result of a job that has ended, without the secrets of its payload.
func New(job *asynq.TaskInfo, secrets redact.Redactor) Result {
	r := Result{
		ID: job.ID, Queue: job.Queue, Type: job.Type, State: job.State.String(), Ended: job.CompletedAt,
		Payload:  cli.Text(secrets.Payload(job.Payload)),
		response: ParseResponse(job.Type, job.Result),
	}
	if job.State == asynq.TaskStateArchived {
		r.Ended, r.Error = job.LastFailedAt, job.LastErr
	}
	body := cli.Text(r.response.body)
	if r.HTTPResult = r.response.call; r.HTTPResult == nil {
		r.Result = &body
	} else {
		r.Body = &body
	}
	return r
}

func (r Result) line() string {
	what, text := "result", strings.TrimSpace(string(r.response.body))
	if r.HTTPResult != nil {
		what = r.response.status()
		if r.Saved != "" {
			text = "saved: " + r.Saved
		}
	}
	if text == "" && r.Error != "" {
		what, text = "no response", r.Error
	}
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s  %s  %s", cli.DateTime(r.Ended), cli.Cell(r.ID), cli.Cell(r.Type), cli.Cell(string(r.Payload)), what, cli.Cell(text)), " ")
}

// Response is the result that a job's handler wrote: for an http:request the response of its last run.
type Response struct {
	call *tasks.HTTPResult // nil for other types
	body []byte
}

// ParseResponse parses a result. A result that is no HTTPResult becomes the body.
func ParseResponse(taskType string, result []byte) Response {
	var call tasks.HTTPResult
	if taskType != tasks.TypeHTTPRequest || json.Unmarshal(result, &call) != nil {
		return Response{body: result}
	}
	body := []byte(call.Body)
	if call.Base64 {
		call.Base64 = false
		var err error
		if body, err = base64.StdEncoding.DecodeString(call.Body); err != nil {
			return Response{body: result}
		}
	}
	return Response{&call, body}
}

// Lines returns the names and values of a response, for [cli.Fields].
func (r Response) Lines() [][2]string {
	if r.call == nil {
		return [][2]string{{"result", string(r.body)}}
	}
	lines := [][2]string{{"response", r.status()}, {"url", r.call.URL}, {"saved", r.call.Saved}}
	for _, name := range slices.Sorted(maps.Keys(r.call.Headers)) {
		lines = append(lines, [2]string{"header", name + ": " + strings.Join(r.call.Headers[name], ", ")})
	}
	return append(lines, [2]string{"body", string(r.body)})
}

func (r Response) status() string {
	length := fmt.Sprintf("%d bytes", len(r.body))
	switch {
	case r.call.Truncated && r.call.Length >= 0:
		length = fmt.Sprintf("the first %d of %d bytes", len(r.body), r.call.Length)
	case r.call.Truncated:
		length = "the first " + length
	case r.call.Saved != "":
		length = fmt.Sprintf("%d bytes", r.call.Length)
	}
	took := duration.Text(time.Duration(r.call.DurationMS) * time.Millisecond)
	return fmt.Sprintf("%d %s in %s, %s", r.call.Status, http.StatusText(r.call.Status), took, length)
}

// Sink prints or writes results. Close must be called after the last one.
type Sink interface {
	Put(r Result) error
	Close() error
}

// Print returns a sink that prints one line for each result.
func Print(out io.Writer, json bool) Sink { return &lines{out: out, json: json} }

type lines struct {
	out  io.Writer
	json bool
	n    int
}

func (l *lines) Put(r Result) (err error) {
	l.n++
	if l.json {
		return cli.JSONLine(l.out, r)
	}
	_, err = fmt.Fprintln(l.out, r.line())
	return err
}

func (l *lines) Close() error {
	if l.n == 0 && !l.json {
		fmt.Fprintln(l.out, "no result matches: finished jobs keep their results only with a retention")
	}
	return nil
}

// folder is a Sink that writes each body to a file, in a folder for each queue.
type folder struct {
	root                     *os.Root
	stdio                    cli.IO
	written, exist, differed int
}

// Create returns a sink that writes one file for each body to a folder. It replaces no file.
func Create(name string, stdio cli.IO) (Sink, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, cli.Usagef("--out %w", err)
	}
	root, err := os.OpenRoot(name)
	return &folder{root: root, stdio: stdio}, err
}

func (f *folder) Put(r Result) error {
	if len(r.response.body) == 0 || r.HTTPResult != nil && r.Saved != "" {
		return nil
	}
	queue := fileName(r.Queue)
	name, temp := filepath.Join(queue, fileName(r.ID)), filepath.Join(queue, ".headgate-"+uuid.NewString())
	if err := errors.Join(f.root.MkdirAll(queue, 0o755), f.root.WriteFile(temp, r.response.body, 0o644)); err != nil {
		return err
	}
	err := f.root.Link(temp, name) // unlike a rename, it replaces no file
	err = errors.Join(err, f.root.Remove(temp))
	if errors.Is(err, fs.ErrExist) {
		if before, err := f.root.ReadFile(name); err == nil && bytes.Equal(before, r.response.body) {
			f.exist++
			return nil
		}
		f.differed++
		fmt.Fprintf(f.stdio.Err, "worker: %s exists with other content and is not replaced\n", name)
		return nil
	}
	if err == nil {
		f.written++
	}
	return err
}

func (f *folder) Close() error {
	fmt.Fprintf(f.stdio.Out, "wrote %d bodies below %s; %d exist already\n", f.written, f.root.Name(), f.exist+f.differed)
	if err := f.root.Close(); err != nil || f.differed == 0 {
		return err
	}
	return cli.Failed
}

// fileName returns a file name for a text. The name contains no folder, and different texts have
// different names.
func fileName(text string) string {
	var name strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '@', c == '-', c == '.' && i > 0:
			name.WriteByte(c)
		default:
			fmt.Fprintf(&name, "%%%02X", c)
		}
	}
	if name.Len() > 150 { // of about 255 that a file system allows
		return fmt.Sprintf("%s~%x", name.String()[:100], sha256.Sum256([]byte(text)))
	}
	return name.String()
}

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
	"mime"
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
	return strings.TrimRight(fmt.Sprintf("%s  %s  %s  %s  %s  %s", cli.DateTime(r.Ended), cli.Cell(r.ID), cli.Cell(r.Type), cli.Cell(string(r.Payload)), what, cli.Cell(text)), " ")
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
	"text/html": ".html", "text/plain": ".txt", "text/css": ".css", "text/csv": ".csv", "text/xml": ".xml", "application/xml": ".xml",
	"application/json": ".json", "application/pdf": ".pdf", "image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg",
}

// extension returns the file extension for the kept Content-Type, or else for the type that the body
// looks like.
func (a Answer) extension() string {
	kind := http.DetectContentType(a.body)
	if a.call != nil && len(a.call.Headers["Content-Type"]) > 0 {
		kind = a.call.Headers["Content-Type"][0]
	}
	kind, _, _ = mime.ParseMediaType(kind)
	return extensions[kind]
}

// Sink takes results. Close is called after the last one.
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

// folder writes each body to a file. Each queue has a folder of its own.
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
	if len(r.answer.body) == 0 || r.HTTPResult != nil && r.Saved != "" {
		return nil
	}
	queue := fileName(r.Queue)
	name, temp := filepath.Join(queue, fileName(r.ID)+r.answer.extension()), filepath.Join(queue, ".headgate-"+uuid.NewString())
	if err := errors.Join(f.root.MkdirAll(queue, 0o755), f.root.WriteFile(temp, r.answer.body, 0o644)); err != nil {
		return err
	}
	err := f.root.Link(temp, name) // unlike a rename, it replaces no file
	err = errors.Join(err, f.root.Remove(temp))
	if errors.Is(err, fs.ErrExist) {
		if before, err := f.root.ReadFile(name); err == nil && bytes.Equal(before, r.answer.body) {
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

// fileName returns a text as the name of a file. The name leads to no other folder, and different
// texts have different names.
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

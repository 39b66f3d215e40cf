package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/jobspec"
)

// input is the jobs of a request. Line 1 has one job if isSingle is true.
type input struct {
	lines    [][]byte // as in the request, so that an index is a line number
	isSingle bool
}

// read returns the jobs of a request, or a *failure.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (in input, err error) {
	if err := h.allows(r); err != nil {
		return in, err
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	in.isSingle = kind == "application/json"
	if !in.isSingle && !slices.Contains([]string{"application/x-ndjson", "application/jsonl"}, kind) {
		return in, failf(http.StatusUnsupportedMediaType, "Content-Type %.40q: want application/json for a job, or application/x-ndjson or application/jsonl for one job a line", kind)
	}
	control := http.NewResponseController(w) // ErrNotSupported, if a test has no connection, changes nothing
	_ = control.SetReadDeadline(time.Now().Add(sendTimeout))
	_ = control.SetWriteDeadline(time.Now().Add(2 * sendTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	body = bytes.TrimPrefix(body, []byte("\ufeff")) // some clients write this byte order mark
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return in, failf(http.StatusRequestEntityTooLarge, "the body is longer than %d bytes: want fewer jobs in a request", maxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return in, failf(http.StatusRequestTimeout, "the body did not come within %s", sendTimeout)
	case err != nil:
		return in, failf(http.StatusBadRequest, "cannot read the body: %v", err)
	case in.isSingle:
		in.lines = [][]byte{body}
		return in, nil
	}
	in.lines = bytes.Split(body, []byte("\n"))
	jobs := 0
	for i, line := range in.lines {
		if in.lines[i] = bytes.TrimSpace(line); len(in.lines[i]) > 0 {
			jobs++
		}
	}
	if jobs == 0 {
		return in, failf(http.StatusBadRequest, "the body is empty: want one JSON object a line")
	}
	if jobs > maxJobs {
		return in, failf(http.StatusRequestEntityTooLarge, "%d jobs: want at most %d in a request", jobs, maxJobs)
	}
	return in, nil
}

// job is a checked job of a request.
type job struct {
	line int
	jobspec.Checked
}

// check returns the jobs of a request. If a line is bad, the answer has the error that enqueue prints.
func (in input) check(c *config.Config, a *answer) (jobs []job) {
	for i, text := range in.lines {
		if len(text) == 0 && !in.isSingle {
			continue
		}
		j := job{line: i + 1}
		where := fmt.Sprintf("line %d: ", j.line)
		if in.isSingle {
			j.line, where = 0, ""
		}
		parsed, err := jobspec.Parse(text)
		if err == nil {
			j.Checked, err = parsed.Check(jobspec.Options{}, c)
		}
		if err != nil {
			a.BadLines++
			a.Error = cmp.Or(a.Error, where+err.Error())
			a.Jobs = append(a.Jobs, jobAnswer{j.line, parsed.ID, bad, err.Error()})
			continue
		}
		if text := fmt.Sprintf("type %q %s", j.Type, j.Warning); j.Warning != "" && !slices.Contains(a.Warnings, text) {
			a.Warnings = append(a.Warnings, text)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// enqueue adds the jobs, also if the client has gone, and notes in the answer what became of each.
func (h *Handler) enqueue(ctx context.Context, jobs []job, a *answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), redisTimeout)
	defer cancel()
	tasks, opened := make([]*asynq.Task, len(jobs)), map[string]bool{}
	for i, j := range jobs {
		tasks[i] = j.Task()
		if j.Batch != "" && !opened[j.Batch] {
			opened[j.Batch] = true
			_ = h.Config().OpenBatch(ctx, h.Client, j.Batch, j.Queue) // EnqueueAll returns the error of a batch, too
		}
	}
	for i, added := range h.Client.EnqueueAll(ctx, tasks...) {
		result := jobAnswer{Line: jobs[i].line, ID: jobs[i].ID, Status: enqueued}
		exists, err := jobs[i].Added(added.Err)
		switch {
		case exists:
			a.There++
			result.Status = thereAlready
		case err != nil:
			if ctx.Err() != nil {
				err = fmt.Errorf("no answer within %s", redisTimeout)
			}
			err = fmt.Errorf("Redis has not confirmed the job: %w", err)
			result.Status = unknown
		default:
			a.Enqueued++
		}
		if err != nil {
			result.Error = err.Error()
			a.Error = cmp.Or(a.Error, result.Error)
		}
		a.Jobs = append(a.Jobs, result)
	}
}

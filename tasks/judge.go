package tasks

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// MaxJudgedBody is the maximum number of bytes of Response.Body.
const MaxJudgedBody = 256 << 10

// Response is the response to a job's call, for Feedback.Judge.
type Response struct {
	Status int
	Header http.Header
	// Body returns the beginning of the body, at most MaxJudgedBody bytes. The first call waits for
	// these bytes. The handler reads them again. A body with the Content-Encoding gzip is decompressed:
	// Go's client does that only if the request did not ask for gzip itself.
	Body func() []byte
}

// Verdict is what a response means, if its status does not say so.
type Verdict int

// The verdicts. The zero value means what the status says.
const (
	VerdictByStatus    Verdict = iota
	VerdictRateLimited         // a rate limit, as 429
	VerdictRetry               // a failed attempt, after which another can succeed
)

// judge is Feedback.Judge for a task.
type judge func(ctx context.Context, r Response) Verdict

type judgeKey struct{} // the context key of a judge

func (f *Feedback) withJudge(ctx context.Context, task *asynq.Task) context.Context {
	if f.Judge == nil {
		return ctx
	}
	return context.WithValue(ctx, judgeKey{}, judge(func(ctx context.Context, r Response) Verdict { return f.Judge(ctx, task, r) }))
}

// judge calls the Judge in ctx, if there is one, and records its verdict. The caller can read the whole
// of resp.Body afterwards.
func (e *StatusError) judge(ctx context.Context, resp *http.Response) {
	ask, ok := ctx.Value(judgeKey{}).(judge)
	if !ok || resp.Body == nil {
		return
	}
	e.verdict = ask(ctx, Response{Status: e.Status, Header: resp.Header, Body: sync.OnceValue(func() []byte {
		beginning := &peekedBody{ReadCloser: resp.Body}
		beginning.peeked, beginning.err = io.ReadAll(io.LimitReader(resp.Body, MaxJudgedBody))
		resp.Body = beginning
		return decompressed(resp.Header.Get("Content-Encoding"), slices.Clip(beginning.peeked))
	})})
	switch e.verdict {
	case VerdictRateLimited:
		e.readTimes(http.StatusTooManyRequests, resp.Header)
		e.permanent = false
	case VerdictRetry:
		e.permanent = false
	}
}

// decompressed returns up to MaxJudgedBody bytes of the content of a gzip stream's beginning. It returns
// any other body unchanged.
func decompressed(encoding string, body []byte) []byte {
	if !strings.EqualFold(encoding, "gzip") {
		return body
	}
	stream, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	content, _ := io.ReadAll(io.LimitReader(stream, MaxJudgedBody)) // an error is the end of what was read
	return content
}

// readTimes sets the times that the response names, as those of a response with the given status.
func (e *StatusError) readTimes(status int, header http.Header) {
	e.received = time.Now()
	e.Until, e.RetryAfter = ReadUpstream(status, header, e.received)
	if !e.Until.IsZero() {
		e.RetryAfter = e.Until.Sub(e.received)
	}
}

// isRateLimit reports whether the upstream has refused the call because of its rate.
func (e *StatusError) isRateLimit() bool {
	return e.verdict == VerdictRateLimited || isRateLimit(e.Status)
}

// peekedBody is a body whose beginning has been read.
type peekedBody struct {
	io.ReadCloser
	peeked []byte
	err    error // the error after peeked, or nil
}

func (b *peekedBody) Read(p []byte) (int, error) {
	switch {
	case len(b.peeked) > 0:
		n := copy(p, b.peeked)
		b.peeked = b.peeked[n:]
		return n, nil
	case b.err != nil && !errors.Is(b.err, io.EOF):
		return 0, b.err
	}
	return b.ReadCloser.Read(p)
}

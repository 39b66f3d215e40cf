// Package api lets other programs add jobs over HTTP. docs/openapi.yaml describes it.
package api

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/scheduler"
)

// Prefix is the path below which a Handler answers.
const Prefix = "/v1/"

const (
	maxBody = 4 << 20 // bytes of a request
	maxJobs = 1000    // jobs of a request

	// sendTimeout bounds the time in which a client sends its jobs. The whole request may take twice as
	// long.
	sendTimeout  = 30 * time.Second
	redisTimeout = 10 * time.Second // bounds the time in which Redis takes the jobs
	// retryAfter is when a client may repeat a request for which Redis was not available.
	retryAfter = 5 * time.Second
)

// Handler adds jobs to their queues, as the command enqueue does.
type Handler struct {
	Token  string                // of the clients; empty means that the API is off
	Config func() *config.Config // the current config, by which jobs are checked
	Client *scheduler.Client
}

// answer is the body of each response.
type answer struct {
	Enqueued int         `json:"enqueued"`
	There    int         `json:"there_already"`
	BadLines int         `json:"bad_lines"`
	Error    string      `json:"error,omitempty"` // the first error
	Jobs     []jobAnswer `json:"jobs,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
}

// jobAnswer is what became of one job. Line is 0 if the request has one job only.
type jobAnswer struct {
	Line   int    `json:"line,omitempty"`
	ID     string `json:"id,omitempty"`
	Status status `json:"status"`
	Error  string `json:"error,omitempty"`
}

type status string

const (
	enqueued     status = "enqueued"
	thereAlready status = "there_already"
	bad          status = "bad"
	unknown      status = "unknown" // Redis has not confirmed the job
)

// failure ends a request. It has the response's status code and text.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func failf(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, a := h.handle(w, r)
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	switch code {
	case http.StatusMethodNotAllowed:
		header.Set("Allow", http.MethodPost)
	case http.StatusUnauthorized:
		header.Set("WWW-Authenticate", `Bearer realm="headgate api"`)
	case http.StatusServiceUnavailable:
		header.Set("Retry-After", strconv.Itoa(int(retryAfter.Seconds())))
	}
	w.WriteHeader(code)
	_ = cli.JSONLine(w, a)
}

func (h *Handler) handle(w http.ResponseWriter, r *http.Request) (code int, a answer) {
	input, err := h.read(w, r)
	if failed, ok := err.(*failure); ok {
		return failed.code, answer{Error: failed.text}
	}
	jobs := input.check(h.Config(), &a)
	if a.BadLines > 0 {
		a.Error += "; no job was added"
		return http.StatusBadRequest, a
	}
	h.enqueue(r.Context(), jobs, &a)
	switch {
	case a.Enqueued+a.There < len(jobs):
		return http.StatusServiceUnavailable, a
	case a.Enqueued == 0:
		return http.StatusConflict, a
	}
	return http.StatusAccepted, a
}

// allows returns an error if the client may not add jobs with the request.
func (h *Handler) allows(r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	// Hashes of one length, compared in constant time, leak neither the token nor its length.
	given, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(h.Token))
	switch {
	case h.Token == "":
		return failf(http.StatusNotFound, "the API is off: want api: {token: …} in the worker's config")
	case r.URL.Path != Prefix+"jobs":
		return failf(http.StatusNotFound, "path %s: want %sjobs", r.URL.Path, Prefix)
	case r.Method != http.MethodPost:
		return failf(http.StatusMethodNotAllowed, "method %s: want POST", r.Method)
	case !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(given[:], want[:]) == 0:
		return failf(http.StatusUnauthorized, "the token of the API is missing or wrong: want \"Authorization: Bearer TOKEN\" with api.token of the worker's config")
	case cmp.Or(r.Header.Get("Content-Encoding"), "identity") != "identity":
		return failf(http.StatusUnsupportedMediaType, "Content-Encoding %.40q: want none", r.Header.Get("Content-Encoding"))
	}
	return nil
}

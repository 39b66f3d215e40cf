package asynqdb

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// KeptAttempts is how many are kept of a job.
const KeptAttempts = 10

// maxError is how much of an error is kept, in bytes.
const maxError = 1000

// Attempt is how one attempt of a job has ended.
type Attempt struct {
	At     time.Time     // by its worker's clock
	Took   time.Duration // zero where nobody knows
	Worker string        // host:pid; empty where that died
	Error  string        // its beginning; empty where the job is done
}

// line is an attempt as it is kept.
type line struct {
	AtMS   int64  `json:"at"`
	TookMS int64  `json:"took,omitempty"`
	Worker string `json:"worker,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Here is this process, as host:pid.
var Here = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
})

// NoteAttempt notes how an attempt has ended of a job of which one has failed, if it is there
// still: in the job's own hash, so that it goes with it.
func (db DB) NoteAttempt(ctx context.Context, queue, id string, a Attempt) error {
	if len(a.Error) > maxError {
		a.Error = strings.ToValidUTF8(a.Error[:maxError], "") + "…"
	}
	text, err := json.Marshal(line{a.At.UnixMilli(), a.Took.Milliseconds(), a.Worker, a.Error})
	if err != nil {
		return err
	}
	return attemptScript.Run(ctx, db.Redis, []string{Hash(queue, id)}, text, KeptAttempts).Err()
}

// Attempts are how the last attempts of a job ended of which one has failed, the last first,
// and how often its worker died beside them, which was forgiven. A line that nobody here has
// written is left out.
func (db DB) Attempts(ctx context.Context, queue, id string) (list []Attempt, crashes int, err error) {
	fields, err := db.Redis.HMGet(ctx, Hash(queue, id), "attempts", "crashes").Result()
	if err != nil {
		return nil, 0, err
	}
	text, _ := fields[0].(string)
	for _, encoded := range slices.Backward(strings.Split(text, "\n")) {
		var l line
		if json.Unmarshal([]byte(encoded), &l) == nil {
			list = append(list, Attempt{time.UnixMilli(l.AtMS), time.Duration(l.TookMS) * time.Millisecond, l.Worker, PlainError(l.Error)})
		}
	}
	text, _ = fields[1].(string)
	crashes, _ = strconv.Atoi(text)
	return list, crashes, nil
}

// PlainError is an error's text as asynq stores it, for people: without what asynq.SkipRetry says of
// itself, which reads as if somebody should skip something.
func PlainError(text string) string {
	skip := asynq.SkipRetry.Error()
	if text == skip {
		return "its handler gave it up"
	}
	return strings.ReplaceAll(text, ": "+skip, "")
}

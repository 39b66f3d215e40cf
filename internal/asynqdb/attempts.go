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

	"github.com/headgate/headgate/internal/script"
)

// KeptAttempts is the number of attempts that Redis keeps for each job.
const KeptAttempts = 10

// maxError is the most bytes of an error text that NoteAttempt stores.
const maxError = 1000

// Attempt describes the end of one attempt of a job.
type Attempt struct {
	At     time.Time     `json:"at"`               // the end, by the worker's clock
	Took   time.Duration `json:"took,omitempty"`   // zero if it is not known
	Worker string        `json:"worker,omitempty"` // host:pid; empty if the worker died
	Error  string        `json:"error,omitempty"`  // cut after maxError bytes; empty if the job succeeded
}

// ProcessName returns the name of this process, host:pid.
var ProcessName = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
})

var attemptScript = script.New("asynq/attempt")

// NoteAttempt adds an attempt to the hash of its job, if the job still exists. Deleting the job
// deletes its attempts as well.
func (db DB) NoteAttempt(ctx context.Context, queue, id string, a Attempt) error {
	if len(a.Error) > maxError {
		a.Error = strings.ToValidUTF8(a.Error[:maxError], "") + "…"
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return attemptScript.Run(ctx, db.Redis, []string{Hash(queue, id)}, text, KeptAttempts).Err()
}

// Attempts returns the noted attempts of a job, the latest first, and the number of crashes of its
// workers that did not count as failures.
func (db DB) Attempts(ctx context.Context, queue, id string) (list []Attempt, crashes int, err error) {
	fields, err := db.Redis.HMGet(ctx, Hash(queue, id), "attempts", "crashes").Result()
	if err != nil {
		return nil, 0, err
	}
	text, _ := fields[0].(string)
	for _, encoded := range slices.Backward(strings.Split(text, "\n")) {
		var a Attempt
		if json.Unmarshal([]byte(encoded), &a) == nil {
			a.Error = PlainError(a.Error)
			list = append(list, a)
		}
	}
	text, _ = fields[1].(string)
	crashes, _ = strconv.Atoi(text)
	return list, crashes, nil
}

// PlainError returns an error text that asynq has stored, without the words of asynq.SkipRetry,
// which would confuse the user.
func PlainError(text string) string {
	skip := asynq.SkipRetry.Error()
	if text == skip {
		return "the handler asked not to retry this job"
	}
	return strings.ReplaceAll(text, ": "+skip, "")
}

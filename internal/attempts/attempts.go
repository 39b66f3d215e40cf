// Package attempts keeps how the attempts of jobs have ended of which one has failed: the
// last of them in a field of the job's own hash in asynq, so that they go with it. A job that
// succeeds at once has none.
package attempts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// Field is the field of a job's hash that has them.
const Field = "attempts"

// Kept is how many are kept of a job.
const Kept = 10

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

// Note adds an attempt to those of the job with that hash, if there is one still; and says
// where the job stood, which is empty where nobody knows.
func Note(ctx context.Context, rdb redis.Scripter, hash string, a Attempt, stood string) error {
	if len(a.Error) > maxError {
		a.Error = strings.ToValidUTF8(a.Error[:maxError], "") + "…"
	}
	text, err := json.Marshal(line{a.At.UnixMilli(), a.Took.Milliseconds(), a.Worker, a.Error})
	if err != nil {
		return err
	}
	return lua.Attempt.Run(ctx, rdb, []string{hash}, text, Kept, stood).Err()
}

// Stood says of the job with that hash where it stood, if there is one still.
func Stood(ctx context.Context, rdb redis.Scripter, hash, stood string) error {
	return lua.Attempt.Run(ctx, rdb, []string{hash}, "", Kept, stood).Err()
}

// Plain is an error's text as asynq stores it, for people: without what asynq.SkipRetry says of
// itself, which reads as if somebody should skip something.
func Plain(text string) string {
	skip := asynq.SkipRetry.Error()
	if text == skip {
		return "its handler gave it up"
	}
	return strings.ReplaceAll(text, ": "+skip, "")
}

// Parse reads the field, the last attempt first. A line that nobody here has written is left
// out.
func Parse(field string) (list []Attempt) {
	lines := strings.Split(field, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		var l line
		if json.Unmarshal([]byte(lines[i]), &l) == nil {
			list = append(list, Attempt{time.UnixMilli(l.AtMS), time.Duration(l.TookMS) * time.Millisecond, l.Worker, Plain(l.Error)})
		}
	}
	return list
}

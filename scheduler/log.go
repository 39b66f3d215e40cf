package scheduler

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/hibiken/asynq"
)

// asynqLog is the logger that asynq's server gets. It passes lines to the program's logger, except
// "Retry exhausted" for a job that is put back. asynq logs that line for any job on its last
// attempt, before redisClient puts the job back. It also leaves out that asynq has no subscription
// to cancellations: see noSubscription.
type asynqLog struct {
	asynq.Logger
	inFlight *inFlight
}

// Warn implements asynq.Logger.
func (l asynqLog) Warn(args ...any) {
	if id, ok := strings.CutPrefix(fmt.Sprint(args...), "Retry exhausted for task id="); ok && l.inFlight.putsBack(id) {
		return
	}
	l.Logger.Warn(args...)
}

// Error implements asynq.Logger.
func (l asynqLog) Error(args ...any) {
	if !strings.HasPrefix(fmt.Sprint(args...), subscribeError) {
		l.Logger.Error(args...)
	}
}

// stderr writes lines in the format of asynq's default logger, which asynq does not export.
type stderr struct{ *log.Logger }

func newStderr() stderr {
	flags := log.Ldate | log.Ltime | log.Lmicroseconds | log.LUTC
	return stderr{log.New(os.Stderr, fmt.Sprintf("asynq: pid=%d ", os.Getpid()), flags)}
}

func (l stderr) line(level string, args []any) { l.Print(level, ": ", fmt.Sprint(args...)) }

func (l stderr) Debug(args ...any) { l.line("DEBUG", args) }
func (l stderr) Info(args ...any)  { l.line("INFO", args) }
func (l stderr) Warn(args ...any)  { l.line("WARN", args) }
func (l stderr) Error(args ...any) { l.line("ERROR", args) }
func (l stderr) Fatal(args ...any) { l.line("FATAL", args); os.Exit(1) }

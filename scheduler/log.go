package scheduler

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/hibiken/asynq"
)

// asynqLog is the logger that asynq's server gets: the program's own, without
// asynq's word that a job's retries are exhausted where the job is put back. asynq
// says that before it writes the job back, when it cannot know better. All other
// lines pass.
type asynqLog struct {
	asynq.Logger
	inFlight *inFlight
}

// Warn implements asynq.Logger. The line has the job's ID but not its queue, so it
// is left out too where another queue's job of the same ID is put back.
func (l asynqLog) Warn(args ...any) {
	if id, ok := strings.CutPrefix(fmt.Sprint(args...), "Retry exhausted for task id="); ok && l.inFlight.putsBack(id) {
		return
	}
	l.Logger.Warn(args...)
}

// stderr is a logger that writes what asynq's default logger writes. asynq makes
// that one itself and keeps it, so there is none to put an asqynLog in front of.
type stderr struct{ *log.Logger }

// newStderr is what asynq logs to where the program has no Logger.
func newStderr() stderr {
	flags := log.Ldate | log.Ltime | log.Lmicroseconds | log.LUTC
	return stderr{log.New(os.Stderr, fmt.Sprintf("asynq: pid=%d ", os.Getpid()), flags)}
}

// line writes a line as asynq's own logger does. The methods below are those of
// asynq.Logger.
func (l stderr) line(level string, args []any) { l.Print(level, ": ", fmt.Sprint(args...)) }

func (l stderr) Debug(args ...any) { l.line("DEBUG", args) }
func (l stderr) Info(args ...any)  { l.line("INFO", args) }
func (l stderr) Warn(args ...any)  { l.line("WARN", args) }
func (l stderr) Error(args ...any) { l.line("ERROR", args) }
func (l stderr) Fatal(args ...any) { l.line("FATAL", args); os.Exit(1) }

package cli

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/lmittmann/tint"

	"github.com/headgate/headgate/internal/duration"
)

// LogFlags are the flags of the log.
type LogFlags struct {
	Format string     `name:"log-format" env:"HEADGATE_LOG_FORMAT" enum:"text,json" default:"text" placeholder:"text|json" help:"Log format: text (colored on a terminal unless NO_COLOR is set, key=value elsewhere) or json (one object per line, durations in seconds under names ending in _s, and messages on stderr are logged, too) (default ${default})."`
	Level  slog.Level `name:"log-level" env:"HEADGATE_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"Lowest log level: debug, info, warn or error (default ${default}). debug logs each denied job."`
}

// Logger returns a logger with the settings of the flags.
func (f LogFlags) Logger(w io.Writer) *slog.Logger { return f.loggerFor(w, IsTerminal(w)) }

func (f LogFlags) loggerFor(w io.Writer, terminal bool) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.Level}
	switch {
	case f.AsJSON():
		options.ReplaceAttr = inSeconds
		return slog.New(slog.NewJSONHandler(w, options))
	case terminal:
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: f.Level, TimeFormat: time.TimeOnly, ReplaceAttr: humanDurations, NoColor: os.Getenv("NO_COLOR") != ""}))
	}
	options.ReplaceAttr = humanDurations
	return slog.New(slog.NewTextHandler(w, options))
}

// AsJSON reports whether the log is JSON.
func (f LogFlags) AsJSON() bool { return f.Format == "json" }

// inSeconds writes durations in seconds, with the unit in the name.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"_s", seconds(a.Value.Duration()))
	}
	return a
}

// humanDurations formats durations as tables and messages do, such as 1 min 30 s.
func humanDurations(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, duration.Text(a.Value.Duration()))
	}
	return a
}

// LogOutput returns stdio. If the log is JSON, the result logs each line that is written to its Err,
// without the prefix "NAME: ".
func (f LogFlags) LogOutput(name string, stdio IO) IO {
	if f.AsJSON() {
		log := f.Logger(stdio.Err)
		stdio.Err = lineLogger{log, name + ": "}
		traceWarning.Store(new(func(text string) { log.Warn("cannot export traces", "error", text) }))
	}
	return stdio
}

// lineLogger logs each line that is written to it.
type lineLogger struct {
	log    *slog.Logger
	prefix string
}

// Write implements io.Writer. It expects whole lines.
func (l lineLogger) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.log.Info(strings.TrimPrefix(strings.TrimSuffix(string(line), "\n"), l.prefix))
	}
	return len(p), nil
}

// Report returns err, which Main prints. If the log is JSON, Report logs err instead, and returns
// only the exit code.
func (f LogFlags) Report(log *slog.Logger, message string, err error) error {
	if _, printed := errors.AsType[ExitCode](err); err == nil || printed || !f.AsJSON() {
		return err
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		log.Error(message, "error", line)
	}
	return codeOf(err)
}

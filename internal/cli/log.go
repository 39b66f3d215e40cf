package cli

import (
	"io"
	"log/slog"
	"time"

	"github.com/lmittmann/tint"
)

// LogFlags say how a command logs.
type LogFlags struct {
	Format string     `name:"log-format" env:"HEADGATE_LOG_FORMAT" enum:"text,json" default:"text" placeholder:"text|json" help:"How to log: text has colours on a terminal, and key=value elsewhere; json is one object a line (default ${default})."`
	Level  slog.Level `name:"log-level" env:"HEADGATE_LOG_LEVEL" default:"info" placeholder:"LEVEL" help:"The least that is logged: debug, info, warn or error (default ${default}). At debug each job that is denied is."`
}

// Logger writes as the flags say.
func (f LogFlags) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.Level}
	switch {
	case f.Format == "json":
		return slog.New(slog.NewJSONHandler(w, options))
	case IsTerminal(w):
		return slog.New(tint.NewTextHandler(w, &tint.Options{Level: f.Level, TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

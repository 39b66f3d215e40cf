package listen

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// ErrorLog is for what net/http has to say. A handshake that fails is for those who debug:
// any client can have it fail, and at a warning for each would fill the log's disk.
func ErrorLog(to *slog.Logger) *log.Logger { return log.New(complaints{to}, "", 0) }

type complaints struct{ log *slog.Logger }

// Write implements io.Writer.
func (c complaints) Write(line []byte) (int, error) {
	text, level := strings.TrimSuffix(string(line), "\n"), slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error") {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, text)
	return len(line), nil
}

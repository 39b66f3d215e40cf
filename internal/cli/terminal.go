package cli

import (
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lmittmann/tint"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// IsTerminal reports whether somebody watches what is written to w.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Logger writes colours on a terminal, and key=value lines elsewhere.
func Logger(w io.Writer) *slog.Logger {
	if IsTerminal(w) {
		return slog.New(tint.NewTextHandler(w, &tint.Options{TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// Bar is a progress bar on a terminal, and nothing elsewhere. With total -1 it
// counts up. The caller must Close it.
func Bar(w io.Writer, total int, what string) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w), progressbar.OptionSetVisibility(IsTerminal(w)),
		progressbar.OptionSetDescription(what), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(),
		progressbar.OptionFullWidth(),
	)
}

// Table writes rows under their titles, in columns.
func Table(w io.Writer, titles []string, rows [][]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{titles}, rows...) {
		line := strings.TrimRight(strings.Join(row, "\t"), "\t")
		if _, err := io.WriteString(columns, line+"\n"); err != nil {
			return err
		}
	}
	return columns.Flush()
}

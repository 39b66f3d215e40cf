package cli

import (
	"fmt"
	"io"
	"os"
	"time"
)

// IsTerminal reports whether somebody watches what is written to w.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := file.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}

// Bar says on a terminal how far some work is, and nothing elsewhere. It is for one
// goroutine.
type Bar struct {
	out         io.Writer // nil where nobody watches
	what        string
	total, done int
	begun, said time.Time
}

// NewBar returns a bar for so many things; with total 0 it counts up. The caller must
// Finish it.
func NewBar(w io.Writer, total int, what string) *Bar {
	b := &Bar{what: what, total: total, begun: time.Now()}
	if IsTerminal(w) {
		b.out = w
	}
	return b
}

// Set says how many are done: ten times a second at most.
func (b *Bar) Set(done int) {
	b.done = done
	if now := time.Now(); b.out != nil && now.Sub(b.said) >= 100*time.Millisecond {
		b.said = now
		fmt.Fprint(b.out, "\r\x1b[K", b.text(now))
	}
}

// text is the line, such as "calls 120/200 60% (24/s)".
func (b *Bar) text(now time.Time) string {
	rate := float64(b.done) / max(now.Sub(b.begun).Seconds(), 0.001)
	if b.total == 0 {
		return fmt.Sprintf("%s %s (%.0f/s)", b.what, thousands(b.done), rate)
	}
	return fmt.Sprintf("%s %s/%s %d%% (%.0f/s)", b.what, thousands(b.done), thousands(b.total), 100*b.done/b.total, rate)
}

// Add says that one more is done.
func (b *Bar) Add() { b.Set(b.done + 1) }

// Finish clears the line.
func (b *Bar) Finish() {
	if b.out != nil {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

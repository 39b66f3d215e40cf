package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/display"
)

// IO are the streams of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// The longest foreign text on a line of its own, and in a table.
const (
	lineBytes = 4000
	cellBytes = 200
)

// Foreign makes a text from outside, such as an ID, a key, a payload or an error, safe to print: one
// line without control characters, cut if it is long.
func Foreign(text string) string { return display.Line(text, lineBytes) }

// Cell is Foreign for a column of a table.
func Cell(text string) string { return display.Line(text, cellBytes) }

// plain reports whether a character has no effect on a terminal.
func plain(r rune, size int) bool {
	return strconv.IsPrint(r) && (r != utf8.RuneError || size > 1)
}

// Table writes rows in columns under titles. The cells may be foreign.
func Table(w io.Writer, titles []string, rows [][]string) error {
	var text bytes.Buffer
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{titles}, rows...) {
		for _, cell := range row {
			fmt.Fprint(columns, Cell(cell), "\t") // also empty cells, because a column ends at a row without it
		}
		fmt.Fprintln(columns)
	}
	if err := columns.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// Fields writes names and values, one pair per line. Values may be foreign. It leaves out pairs without a
// value.
func Fields(w io.Writer, lines [][2]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		if line[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(columns, "%s\t%s\n", line[0], Foreign(line[1])); err != nil {
			return err
		}
	}
	return columns.Flush()
}

// Text is bytes in JSON: a string, or an object {"base64": …} if they are not UTF-8.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": []byte(t)})
}

// JSON writes an indented value.
func JSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// JSONLine writes a value on one line.
func JSONLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeUnprintable(text.Bytes()))
	return err
}

// escapeUnprintable escapes characters in strings that affect a terminal and that encoding/json does not
// escape: upper control characters and those that change the direction.
func escapeUnprintable(text []byte) []byte {
	escaped := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == '\n' || plain(r, max(size, 2)) || r > 0xffff {
			escaped = append(escaped, text[i:i+size]...)
		} else {
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
		i += size
	}
	return escaped
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	stat, err := file.Stat()
	return err == nil && stat.Mode()&os.ModeCharDevice != 0
}

// Bar is a progress bar on a terminal, and nothing elsewhere. It is not safe for concurrent use.
type Bar struct {
	out         io.Writer // nil without a terminal
	what        string
	total, done int
	begun, said time.Time
}

// NewBar returns a bar. With total 0 it only counts. The caller must call Finish.
func NewBar(w io.Writer, total int, what string) *Bar {
	b := &Bar{what: what, total: total, begun: time.Now()}
	if IsTerminal(w) {
		b.out = w
	}
	return b
}

// Set updates the bar, at most ten times a second.
func (b *Bar) Set(done int) {
	b.done = done
	if now := time.Now(); b.out != nil && now.Sub(b.said) >= 100*time.Millisecond {
		b.said = now
		fmt.Fprint(b.out, "\r\x1b[K", b.text(now))
	}
}

// text returns a line such as "calls 120/200 60% (24/s)".
func (b *Bar) text(now time.Time) string {
	rate := float64(b.done) / max(now.Sub(b.begun).Seconds(), 0.001)
	if b.total == 0 {
		return fmt.Sprintf("%s %s (%.0f/s)", b.what, display.Number(b.done), rate)
	}
	return fmt.Sprintf("%s %s/%s %d%% (%.0f/s)", b.what, display.Number(b.done), display.Number(b.total), 100*b.done/b.total, rate)
}

// Add adds one.
func (b *Bar) Add() { b.Set(b.done + 1) }

// Finish clears the line.
func (b *Bar) Finish() {
	if b.out != nil {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

package main

import (
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// The terminal's size in characters: as wide as can be read on a phone.
const (
	columns = 68
	rows    = 10
)

// A frame is what the screen shows from a moment on: its lines, without the
// spaces at their ends.
type frame struct {
	at    time.Duration // since the command began
	lines []string
}

// run returns what a command shows until it ends.
func run(command []string) ([]frame, error) {
	cmd := exec.Command(command[0], command[1:]...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	began := time.Now()
	frames, err := watch(tty, func() time.Duration { return time.Since(began) })
	if errors.Is(err, syscall.EIO) { // so Linux says that the command has gone
		err = nil
	}
	return frames, errors.Join(err, cmd.Wait())
}

// watch takes a frame after each piece of output.
func watch(output io.Reader, since func() time.Duration) ([]frame, error) {
	terminal := vt10x.New(vt10x.WithSize(columns, rows))
	var frames []frame
	piece := make([]byte, 4096)
	for {
		n, err := output.Read(piece)
		if n > 0 {
			if _, err := terminal.Write(piece[:n]); err != nil {
				return nil, err
			}
			frames = add(frames, frame{since(), screen(terminal)})
		}
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
	}
}

func screen(terminal vt10x.Terminal) []string {
	lines := strings.Split(strings.TrimRight(terminal.String(), " \n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// blink is how short a frame must be not to be seen, such as the empty line
// between two states of a progress bar.
const blink = 30 * time.Millisecond

// add appends a frame, unless nothing has changed, in place of one that was there
// for a blink.
func add(frames []frame, next frame) []frame {
	if n := len(frames); n > 0 && next.at-frames[n-1].at < blink {
		next.at = frames[n-1].at
		frames = frames[:n-1]
	}
	if n := len(frames); n > 0 && slices.Equal(frames[n-1].lines, next.lines) {
		return frames
	}
	return append(frames, next)
}

// typed puts the command's own line above its output, and shows it alone first,
// for as long as it takes to read.
func typed(line string, frames []frame) []frame {
	const reading = 1200 * time.Millisecond
	out := []frame{{0, []string{line}}}
	for _, f := range frames {
		out = append(out, frame{f.at + reading, append([]string{line}, f.lines...)})
	}
	return out
}

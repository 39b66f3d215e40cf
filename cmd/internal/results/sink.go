package results

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/headgate/headgate/cmd/internal/cli"
)

// A Sink is where results go. Close prints a summary; complete is whether all results were put.
type Sink interface {
	Put(Result) error
	Close(complete bool) error
}

// To returns a file of JSON lines if the name ends in .jsonl, otherwise a folder with one file for
// each body.
func To(name string, stdio cli.IO) (Sink, error) {
	if !strings.HasSuffix(name, ".jsonl") {
		return newFolder(name, stdio)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, cli.Usagef("--out %w: want a new file", err)
	}
	return &lines{out: file, json: true, close: func(n int) error {
		fmt.Fprintf(stdio.Out, "wrote %d results to %s\n", n, name)
		return file.Close()
	}}, nil
}

// Print prints results, one on each line.
func Print(out io.Writer, json bool) Sink {
	return &lines{out: out, json: json, close: func(n int) error {
		if n == 0 && !json {
			fmt.Fprintln(out, "no result matches: finished jobs keep their results only with a retention")
		}
		return nil
	}}
}

type lines struct {
	out   io.Writer
	json  bool
	n     int
	close func(n int) error
}

func (l *lines) Put(r Result) (err error) {
	l.n++
	if l.json {
		return cli.JSONLine(l.out, r)
	}
	_, err = fmt.Fprintln(l.out, r.line())
	return err
}

func (l *lines) Close(bool) error { return l.close(l.n) }

// folder has one file for each body, in one folder for each queue.
type folder struct {
	root    *os.Root
	stdio   cli.IO
	written int
	others  [len(otherOutcomes)]int
}

// What else becomes of results, by index.
const (
	exists = iota
	differs
	truncated
	saved
	empty
)

var otherOutcomes = [...]string{
	exists:    "exist already",
	differs:   "exist with other content",
	truncated: "are only the beginning, as much as max_body kept",
	saved:     "were saved to a file by the worker",
	empty:     "results have no body",
}

func newFolder(name string, stdio cli.IO) (*folder, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, cli.Usagef("--out %w (a file must end in .jsonl)", err)
	}
	root, err := os.OpenRoot(name)
	return &folder{root: root, stdio: stdio}, err
}

func (f *folder) Put(r Result) error {
	if r.HTTPResult != nil {
		if r.Saved != "" {
			f.others[saved]++
			return nil
		}
		if r.Truncated {
			f.others[truncated]++
		}
	}
	if len(r.answer.body) == 0 {
		f.others[empty]++
		return nil
	}
	queue := fileName(r.Queue)
	name, temp := filepath.Join(queue, fileName(r.ID)+r.answer.extension()), filepath.Join(queue, ".headgate-"+uuid.NewString())
	if err := errors.Join(f.root.MkdirAll(queue, 0o755), f.root.WriteFile(temp, r.answer.body, 0o644)); err != nil {
		return err
	}
	err := f.root.Link(temp, name) // the file appears whole, and replaces none
	err = errors.Join(err, f.root.Remove(temp))
	if errors.Is(err, fs.ErrExist) {
		if before, err := f.root.ReadFile(name); err == nil && bytes.Equal(before, r.answer.body) {
			f.others[exists]++
			return nil
		}
		f.others[differs]++
		fmt.Fprintf(f.stdio.Err, "worker: %s exists with other content and is not replaced\n", name)
		return nil
	}
	if err == nil {
		f.written++
	}
	return err
}

func (f *folder) Close(complete bool) error {
	fmt.Fprintf(f.stdio.Out, "wrote %d bodies below %s", f.written, f.root.Name())
	for i, n := range f.others {
		if n > 0 {
			fmt.Fprintf(f.stdio.Out, "; %d %s", n, otherOutcomes[i])
		}
	}
	fmt.Fprintln(f.stdio.Out)
	err := f.root.Close()
	if complete && f.others[differs] > 0 {
		return cli.Failed
	}
	return err
}

// longestName is the longest file name. The end of a longer one is replaced by a hash.
const longestName = 150

// fileName returns a text as the name of a file. It leads to no other folder, and different texts
// have different names.
func fileName(text string) string {
	var name strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '@', c == '-', c == '.' && i > 0:
			name.WriteByte(c)
		default:
			fmt.Fprintf(&name, "%%%02X", c)
		}
		if name.Len() > longestName {
			return fmt.Sprintf("%s~%x", name.String()[:longestName-50], sha256.Sum256([]byte(text)))
		}
	}
	return name.String()
}

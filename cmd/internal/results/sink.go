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

// A Sink takes results. Close prints a summary. complete is true if all results were put.
type Sink interface {
	Put(Result) error
	Close(complete bool) error
}

// Create returns a sink that writes JSON lines to a new file if the name ends in .jsonl, and otherwise
// one file for each body to a folder.
func Create(name string, stdio cli.IO) (Sink, error) {
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

// Print returns a sink that prints one line for each result.
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

// folder writes each body to a file. Each queue has a folder of its own.
type folder struct {
	root    *os.Root
	stdio   cli.IO
	written int
	others  map[string]int // number of other results by outcome
}

// The other outcomes.
const (
	exists    = "exist already"
	differs   = "exist with other content"
	truncated = "are cut at max_body"
	saved     = "were saved to a file by the worker"
	empty     = "results have no body"
)

func newFolder(name string, stdio cli.IO) (*folder, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, cli.Usagef("--out %w (a file must end in .jsonl)", err)
	}
	root, err := os.OpenRoot(name)
	return &folder{root: root, stdio: stdio, others: map[string]int{}}, err
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
	err := f.root.Link(temp, name) // unlike a rename, it replaces no file
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
	for _, outcome := range []string{exists, differs, truncated, saved, empty} {
		if n := f.others[outcome]; n > 0 {
			fmt.Fprintf(f.stdio.Out, "; %d %s", n, outcome)
		}
	}
	fmt.Fprintln(f.stdio.Out)
	err := f.root.Close()
	if complete && f.others[differs] > 0 {
		return cli.Failed
	}
	return err
}

// maxName is the number of bytes from which on a file name ends in a hash instead.
const maxName = 150

// fileName returns a text as the name of a file. The name leads to no other folder, and different
// texts have different names.
func fileName(text string) string {
	var name strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '@', c == '-', c == '.' && i > 0:
			name.WriteByte(c)
		default:
			fmt.Fprintf(&name, "%%%02X", c)
		}
		if name.Len() > maxName {
			return fmt.Sprintf("%s~%x", name.String()[:maxName-50], sha256.Sum256([]byte(text)))
		}
	}
	return name.String()
}

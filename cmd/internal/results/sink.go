// Package results takes what jobs brought home to files, or prints it.
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

// Sink is where results go. Close says what became of them, if they are all.
type Sink interface {
	Put(Result) error
	Close(all bool) error
}

// To is a file of JSON lines if its name ends in .jsonl, else a folder with a file for
// each body.
func To(name string, stdio cli.IO) (Sink, error) {
	if strings.HasSuffix(name, ".jsonl") {
		return newLinesFile(name, stdio.Out)
	}
	return newFolder(name, stdio)
}

// Print writes results for people, or as JSON lines.
func Print(out io.Writer, json bool) Sink { return &screen{out: out, json: json} }

type screen struct {
	out  io.Writer
	json bool
	n    int
}

func (s *screen) Put(r Result) (err error) {
	s.n++
	if s.json {
		return cli.JSONLine(s.out, r)
	}
	_, err = fmt.Fprintln(s.out, r.line())
	return err
}

func (s *screen) Close(all bool) error {
	if all && s.n == 0 && !s.json {
		fmt.Fprintln(s.out, "no result matches: jobs that are done keep theirs only with a retention")
	}
	return nil
}

// linesFile is a new file of JSON lines.
type linesFile struct {
	file *os.File
	n    int
	out  io.Writer
}

func newLinesFile(name string, out io.Writer) (*linesFile, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, cli.Usagef("--out %s: the file is there already", name)
	}
	if err != nil {
		return nil, cli.Usagef("--out %w", err)
	}
	return &linesFile{file: file, out: out}, nil
}

func (f *linesFile) Put(r Result) error {
	f.n++
	return cli.JSONLine(f.file, r)
}

func (f *linesFile) Close(bool) error {
	err := f.file.Close()
	fmt.Fprintf(f.out, "wrote %d results to %s\n", f.n, f.file.Name())
	return err
}

// folder has a file for each body, below it one folder for each queue.
type folder struct {
	root                     *os.Root
	stdio                    cli.IO
	written, there, differ   int
	truncated, saved, nobody int
}

func newFolder(name string, stdio cli.IO) (*folder, error) {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return nil, cli.Usagef("--out %w (a file must end in .jsonl)", err)
	}
	root, err := os.OpenRoot(name)
	return &folder{root: root, stdio: stdio}, err
}

func (f *folder) Put(r Result) error {
	switch {
	case r.Saved != "":
		f.saved++
		return nil
	case len(r.answer.body) == 0:
		f.nobody++
		return nil
	case r.Truncated:
		f.truncated++
	}
	queue := fileName(r.Queue)
	if err := f.root.MkdirAll(queue, 0o755); err != nil {
		return err
	}
	name := filepath.Join(queue, fileName(r.ID)+r.answer.extension())
	err := f.write(filepath.Join(queue, ".headgate-"+uuid.NewString()), name, r.answer.body)
	if err == nil {
		f.written++
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	before, err := f.root.ReadFile(name)
	if err == nil && bytes.Equal(before, r.answer.body) {
		f.there++
		return nil
	}
	f.differ++
	fmt.Fprintf(f.stdio.Err, "worker: %s is there with another content: it is left as it is\n", name)
	return nil
}

func (f *folder) write(temp, name string, body []byte) error {
	if err := f.root.WriteFile(temp, body, 0o644); err != nil {
		return err
	}
	return errors.Join(f.root.Link(temp, name), f.root.Remove(temp))
}

func (f *folder) Close(all bool) error {
	parts := []string{fmt.Sprintf("wrote %d bodies below %s", f.written, f.root.Name())}
	for _, part := range []struct {
		n    int
		what string
	}{
		{f.there, "were there already"},
		{f.differ, "are there with another content"},
		{f.truncated, "are only the beginning, as much as max_body kept"},
		{f.saved, "were saved to a file by the worker"},
		{f.nobody, "results have no body"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	fmt.Fprintln(f.stdio.Out, strings.Join(parts, "; "))
	err := f.root.Close()
	if all && f.differ > 0 {
		return cli.Failed
	}
	return err
}

// longestName is how long a file name may be before a hash stands for its end.
const longestName = 150

// fileName is a text as the name of a file: nothing in it leads to another
// folder, and no two texts have the same.
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

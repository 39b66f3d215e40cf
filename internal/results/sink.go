// Package results takes what jobs brought home to files, or prints it.
package results

import (
	"bufio"
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

	"github.com/headgate/headgate/internal/cli"
)

// Sink is where results go. Close says what became of them, if they are all.
type Sink interface {
	Put(Result) error
	Close(all bool) error
}

// To is a file of JSON lines where its name ends in .jsonl, else a folder with a file for
// each body. A file of lines has its name at once if it grows.
func To(name string, grows bool, stdio cli.IO) (Sink, error) {
	if strings.HasSuffix(name, ".jsonl") {
		return newLinesFile(name, grows, stdio.Out)
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

// linesFile is a file of JSON lines. It gets its name when it is whole, or at
// once if it is to grow.
type linesFile struct {
	file   *os.File
	buffer *bufio.Writer
	name   string
	grows  bool
	n      int
	out    io.Writer
	link   func(old, name string) error // os.Link
}

func newLinesFile(name string, grows bool, out io.Writer) (*linesFile, error) {
	open := name
	if !grows {
		if _, err := os.Lstat(name); err == nil {
			return nil, cli.Usagef("--out %s: the file is there already", name)
		}
		open = filepath.Join(filepath.Dir(name), ".headgate-"+uuid.NewString())
	}
	file, err := os.OpenFile(open, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, cli.Usagef("--out %s: the file is there already", name)
	}
	if err != nil {
		return nil, cli.Usagef("--out %w", err)
	}
	return &linesFile{file: file, buffer: bufio.NewWriter(file), name: name, grows: grows, out: out, link: os.Link}, nil
}

func (f *linesFile) Put(r Result) error {
	f.n++
	if err := cli.JSONLine(f.buffer, r); err != nil || !f.grows {
		return err
	}
	return f.buffer.Flush()
}

func (f *linesFile) Close(all bool) error {
	err := errors.Join(f.buffer.Flush(), f.file.Close())
	if !f.grows {
		if all && err == nil {
			err = f.finish()
		} else {
			err = errors.Join(err, os.Remove(f.file.Name()))
		}
	}
	if err == nil && all {
		fmt.Fprintf(f.out, "wrote %d results to %s\n", f.n, f.name)
	}
	return err
}

// finish gives the file its name, and replaces nothing. Where the name cannot be had the
// file stays, for it took long to write.
func (f *linesFile) finish() error {
	err := f.link(f.file.Name(), f.name)
	if err == nil {
		return os.Remove(f.file.Name())
	}
	if !errors.Is(err, fs.ErrExist) {
		err = f.claim() // not every file system knows hard links
	}
	if err != nil {
		return fmt.Errorf("--out %s: %w; all results are in %s", f.name, err, f.file.Name())
	}
	return nil
}

// claim takes the name by an empty file of our own, which the other replaces.
func (f *linesFile) claim() error {
	own, err := os.OpenFile(f.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(own.Close(), os.Rename(f.file.Name(), f.name))
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

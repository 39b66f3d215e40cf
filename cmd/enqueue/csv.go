package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/display"
)

// isCSV reports whether the file is CSV.
func (c *command) isCSV() bool { return c.CSV || strings.EqualFold(filepath.Ext(c.File), ".csv") }

// checkCSV reports what is wrong with the flags of a CSV file.
func (c *command) checkCSV() error {
	switch {
	case c.File == "":
		return errors.New("--csv: want a FILE, or - for standard input")
	case c.Type == "" || c.Payload == "":
		return errors.New("a CSV file needs --type TYPE, and --payload with the names of columns, such as --payload '{\"url\": ${row.url}}'")
	case !strings.Contains(c.Payload+c.ID, "${"):
		return errors.New("--payload and --id name no column, so all jobs would be the same: want ${row.NAME} in one of them")
	case c.Separator == `\t`:
		c.Separator = "\t"
	case utf8.RuneCountInString(c.Separator) != 1 || strings.ContainsAny(c.Separator, "\"\r\n"):
		return fmt.Errorf("--separator %q: want one character, such as ';'", c.Separator)
	}
	return nil
}

// table makes jobs from the rows of a CSV file.
type table struct {
	rows     *csv.Reader
	columns  []string
	example  []string // a right row
	typename string
	payload  any // for config.FillPayload
	id       expression.Template
}

// newTable reads the header line, and compiles the templates of the flags. They can use only its columns.
func newTable(c *command, input io.Reader) (*table, error) {
	buffered := bufio.NewReader(input)
	start, _ := buffered.Peek(len(byteOrderMark))
	if string(start) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark))
	}
	t := &table{rows: csv.NewReader(buffered), typename: c.Type}
	t.rows.Comma, _ = utf8.DecodeRuneInString(c.Separator)
	t.rows.FieldsPerRecord = -1 // job checks it
	header, err := t.rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is empty: want a line with the names of the columns, and a line for each job", c.File)
	}
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		t.example = []string{"id", "url"}
		err = fmt.Errorf("line %d: %w", wrong.StartLine, t.explain(wrong))
	}
	if err != nil {
		return nil, err
	}
	if t.columns, err = columnsOf(header, c.Separator); err != nil {
		return nil, err
	}
	t.example = t.columns
	vars := expression.RowVars(t.columns)
	if t.payload, err = config.ParsePayload(c.Type, c.Payload, vars); err != nil {
		return nil, fmt.Errorf("--payload: %w", err)
	}
	if t.id, err = expression.ParseTemplate(c.ID, vars); err != nil {
		return nil, fmt.Errorf("--id: %w", err)
	}
	return t, nil
}

// columnsOf returns the names of the columns, or what is wrong with the header line.
func columnsOf(header []string, separator string) (columns []string, err error) {
	if len(header) == 1 && separator == "," && strings.ContainsAny(header[0], ";\t") {
		return nil, fmt.Errorf("the first line %q has one column: want --separator ';', or the separator of the file", cli.Cell(header[0]))
	}
	for i, name := range header {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
			return nil, fmt.Errorf("column %d has no name: want a name in the first line", i+1)
		case slices.Contains(columns, name):
			return nil, fmt.Errorf("two columns have the name %q: want a name of its own for each", name)
		case strings.Contains(name, "\r"):
			return nil, fmt.Errorf("the name of column %d has a CR in it: want lines that end with LF or CR LF", i+1)
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("the name of column %d is not UTF-8: save the file as \"CSV UTF-8\"", i+1)
		}
		columns = append(columns, name)
	}
	return columns, nil
}

// each sends the jobs of the rows until ctx ends. It leaves out rows without any value.
func (t *table) each(ctx context.Context, send func(line)) {
	for ctx.Err() == nil {
		record, err := t.rows.Read()
		wrong, isWrong := errors.AsType[*csv.ParseError](err)
		switch {
		case errors.Is(err, io.EOF):
			return
		case isWrong:
			send(line{number: wrong.StartLine, wrong: t.explain(wrong)})
		case err != nil:
			send(line{ended: err})
			return
		case strings.Join(record, "") != "":
			var l line
			l.number, _ = t.rows.FieldPos(0)
			l.Job, l.wrong = t.job(record)
			send(l)
		}
	}
}

// job returns the job of a row.
func (t *table) job(record []string) (job jobspec.Job, err error) {
	switch {
	case len(record) != len(t.columns):
		return job, fmt.Errorf("%s: want %d, as in %s", display.Count(len(record), "value"), len(t.columns), t.line(t.example))
	case !utf8.ValidString(strings.Join(record, "")):
		return job, errors.New("the text is not UTF-8: save the file as \"CSV UTF-8\"")
	}
	row := expression.Row{}
	for i, name := range t.columns {
		row[name] = record[i]
	}
	job = jobspec.Job{Type: t.typename, Row: jobspec.Row{Columns: t.columns, Values: record}}
	if job.Payload, err = config.FillPayload(t.typename, t.payload, row); err == nil {
		job.ID, err = t.id.Text(row)
	}
	t.example = record
	return job, err
}

// explain adds an example to an error of encoding/csv in a row that begins at wrong.StartLine.
func (t *table) explain(wrong *csv.ParseError) error {
	where := fmt.Sprintf("column %d", wrong.Column)
	if wrong.Line != wrong.StartLine {
		where += fmt.Sprintf(" of line %d", wrong.Line)
	}
	return fmt.Errorf(`%s: %w: want a line such as %s, and a text with quotes as "a ""quoted"" text"`, where, wrong.Err, t.line(t.example))
}

// line returns a row as a line of the file, for an error.
func (t *table) line(record []string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Comma = t.rows.Comma
	_ = w.Write(record) // into memory
	w.Flush()
	return cli.Cell(strings.TrimSuffix(b.String(), "\n"))
}

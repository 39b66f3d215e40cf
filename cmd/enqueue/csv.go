package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/cmd/internal/expression"
	"github.com/headgate/headgate/cmd/internal/jobspec"
	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/tasks"
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
	case c.Separator == `\t`:
		c.Separator = "\t"
	case utf8.RuneCountInString(c.Separator) != 1 || strings.ContainsAny(c.Separator, "\"\r\n"):
		return fmt.Errorf("--separator %q: want one character, such as ';'", c.Separator)
	}
	return nil
}

// table makes jobs from the rows of a CSV file.
type table struct {
	rows        *csv.Reader
	columns     []string
	example     []string // a right row
	typename    string
	payload, id expression.Template
}

// newTable reads the header line, and checks that the templates of the flags use only its columns.
func newTable(c *command, input io.Reader) (*table, error) {
	buffered := bufio.NewReader(input)
	start, _ := buffered.Peek(len(byteOrderMark))
	if string(start) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark))
	}
	t := &table{rows: csv.NewReader(buffered), typename: c.Type}
	t.rows.Comma, _ = utf8.DecodeRuneInString(c.Separator)
	t.rows.FieldsPerRecord = -1 // next checks it
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
	if t.payload, err = t.template("--payload", c.Payload); err != nil {
		return nil, err
	}
	t.id, err = t.template("--id", c.ID)
	return t, cmp.Or(err, t.checkPayload())
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
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("the name of column %d is not UTF-8: save the file as \"CSV UTF-8\"", i+1)
		}
		columns = append(columns, name)
	}
	return columns, nil
}

// template compiles the template of a flag, and checks its columns.
func (t *table) template(flag, text string) (expression.Template, error) {
	template, err := expression.ParseTemplate(text, expression.RowVars)
	for _, name := range template.Columns() {
		if err == nil && !slices.Contains(t.columns, name) {
			err = fmt.Errorf("there is no column %q: the columns are %s", name, strings.Join(t.columns, ", "))
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	return template, err
}

// checkPayload returns an error if the payload is JSON of no row.
func (t *table) checkPayload() error {
	row := expression.Row{}
	for _, name := range t.columns {
		row[name] = "1" // a number as well
	}
	text, err := t.payload.JSON(row)
	if err == nil && !json.Valid([]byte(text)) {
		return fmt.Errorf(`--payload %s is not JSON: want an object such as {"url": ${row.url}}, in the shell's quotes`, strictjson.Shorten([]byte(t.payload.String())))
	}
	return nil
}

// each sends the jobs of the rows until ctx ends.
func (t *table) each(ctx context.Context, send func(line)) {
	for more := true; more && ctx.Err() == nil; {
		var l line
		if l, more = t.next(); more || l.ended != nil {
			send(l)
		}
	}
}

// next returns the job of the next row. It leaves out rows without any value. After the last row, more
// is false.
func (t *table) next() (l line, more bool) {
	var record []string
	var err error
	for err == nil && !slices.ContainsFunc(record, func(text string) bool { return text != "" }) {
		record, err = t.rows.Read()
	}
	wrong, isWrong := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, io.EOF):
		return line{}, false
	case isWrong:
		return line{number: wrong.StartLine, wrong: t.explain(wrong)}, true
	case err != nil:
		return line{ended: err}, false
	}
	l.number, _ = t.rows.FieldPos(0)
	l.Job, l.wrong = t.job(record)
	return l, true
}

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
	payload, err := t.payload.JSON(row)
	if err == nil {
		err = t.checkReferences(payload)
	}
	if err == nil {
		job.ID, err = t.id.Text(row)
	}
	job.Payload, t.example = []byte(payload), record
	return job, err
}

// checkReferences returns an error if the values of a row refer to secrets of the worker: only the
// flag may, because the file can come from someone else.
func (t *table) checkReferences(payload string) error {
	written := 0
	for _, text := range t.payload.PlainTexts() {
		n, _ := tasks.References(text)
		written += n
	}
	if n, _ := tasks.References(payload); n > written {
		return errors.New("a value has ${env: or ${file: in it, which refers to a secret: want references to secrets only in --payload")
	}
	return nil
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

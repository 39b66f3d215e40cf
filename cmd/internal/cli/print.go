package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/internal/duration"
	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/strictjson"
)

// IO are the streams of a command.
type IO struct {
	In       io.Reader
	Out, Err io.Writer
}

// The maximum lengths of a Line and of a Cell.
const (
	lineBytes = 4000
	cellBytes = 200
)

// Line makes an untrusted text, such as an ID, a key, a payload or an error, safe to print: one line
// without control characters, cut if it is long.
func Line(text string) string { return display.Line(text, lineBytes) }

// Cell is Line for a cell of a table: the text is shorter.
func Cell(text string) string { return display.Line(text, cellBytes) }

// List prints structs as a JSON array, or as a Table. If there are no rows, List prints emptyText
// instead of a table.
func List[Row any](w io.Writer, asJSON bool, rows []Row, emptyText string, titles ...string) error {
	if asJSON {
		return JSON(w, append([]Row{}, rows...)) // an empty list is printed as [], not as null
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, Named(emptyText))
		return err
	}
	return Table(w, rows, titles...)
}

// Table prints structs in columns. The title of a column is the name of a field, in any case and with
// any spaces. Of several fields with the name, the last is printed. Table accepts untrusted texts.
func Table[Row any](w io.Writer, rows []Row, titles ...string) error {
	var text bytes.Buffer
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	zones := make([]string, len(titles)) // a title has the zone, if the times of the column have one
	for i, title := range titles {
		if zones[i] = commonZone(rows, title); zones[i] != "" {
			title += " (" + zones[i][1:] + ")"
		}
		fmt.Fprint(columns, title, "\t")
	}
	fmt.Fprintln(columns)
	for _, row := range rows {
		for i, title := range titles {
			text := columnText(reflect.Indirect(reflect.ValueOf(row)), title)
			fmt.Fprint(columns, Cell(strings.TrimSuffix(text, zones[i])), "\t") // ends each cell, even an empty one, because tabwriter ends a column at a row without the cell
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

// Print prints a struct of untrusted values as JSON or text. The text has a line for each field with
// a JSON name, without _s or _in_s at its end, for each element of a list, and for each field of an inner struct, after the struct's name. The text leaves
// out maps, empty lists and texts, false, and zero values with omitempty or omitzero.
func Print(w io.Writer, asJSON bool, object any) error {
	if asJSON {
		return JSON(w, object)
	}
	return Fields(w, fieldLines(reflect.Indirect(reflect.ValueOf(object))))
}

func fieldLines(object reflect.Value) (lines [][2]string) {
	for _, field := range reflect.VisibleFields(object.Type()) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		value, err := object.FieldByIndexErr(field.Index)
		kind := field.Type.Kind()
		if name == "" || name == "-" || err != nil || kind == reflect.Map || value.IsZero() && (options != "" || kind == reflect.Bool) {
			continue
		}
		name = strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(name, "_s"), "_in"), "_", " ")
		_, isText := reflect.TypeAssert[fmt.Stringer](value)
		switch {
		case kind == reflect.Struct && !isText:
			for _, line := range fieldLines(value) {
				lines = append(lines, [2]string{name + ": " + line[0], line[1]})
			}
		case kind == reflect.Slice:
			for i := range value.Len() {
				lines = append(lines, [2]string{name, valueText(value.Index(i))})
			}
		default:
			lines = append(lines, [2]string{name, valueText(value)})
		}
	}
	return lines
}

// columnText returns the text of the field that a column shows, or "" for a zero value that JSON
// omits. The text of an empty list of structs is 0.
func columnText(row reflect.Value, title string) string {
	value, tag := columnValue(row, title)
	if value.IsZero() && value.Kind() != reflect.Slice && strings.Contains(tag, ",omit") {
		return ""
	}
	return valueText(value)
}

// columnValue returns the field that a column shows, and its JSON tag.
func columnValue(row reflect.Value, title string) (value reflect.Value, tag string) {
	for _, field := range slices.Backward(reflect.VisibleFields(row.Type())) {
		if strings.EqualFold(field.Name, strings.ReplaceAll(title, " ", "")) {
			return row.FieldByIndex(field.Index), field.Tag.Get("json")
		}
	}
	panic("no field for the column " + title)
}

// valueText returns the text of a value. The text of a float is a rate per second. The text of a list
// of structs is its length.
func valueText(value reflect.Value) string {
	if !value.CanInterface() {
		return fmt.Sprint(value)
	}
	switch v := value.Interface().(type) {
	case fmt.Stringer:
		if t, ok := v.(time.Time); ok {
			return DateTime(t)
		}
		return v.String()
	case float64:
		return fmt.Sprintf("%.1f/s", v)
	case bool:
		return map[bool]string{true: "yes", false: "-"}[v]
	case []string:
		return strings.Join(v, ",")
	}
	if value.Kind() == reflect.Slice {
		return strconv.Itoa(value.Len())
	}
	return fmt.Sprint(reflect.Indirect(value))
}

// DateTime returns the local time with its zone, or "-" for the zero time.
func DateTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime + " MST")
}

// commonZone returns the zone of all times of a column, with a space before it, or "" if it has no
// times, or times in summer and in winter.
func commonZone[Row any](rows []Row, title string) (zone string) {
	for _, row := range rows {
		value, _ := columnValue(reflect.Indirect(reflect.ValueOf(row)), title)
		if value.Type() != reflect.TypeFor[time.Time]() {
			return ""
		}
		t := value.Interface().(time.Time)
		own := t.Local().Format(" MST")
		switch {
		case t.IsZero():
		case zone != "" && zone != own:
			return ""
		default:
			zone = own
		}
	}
	return zone
}

// Seconds is a duration: in JSON a number of seconds, as text "-" if it is zero.
type Seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s Seconds) MarshalJSON() ([]byte, error) { return json.Marshal(seconds(time.Duration(s))) }

// seconds returns 1.489 for 1.489 s. The method Seconds returns 1.4889999999999999.
func seconds(d time.Duration) float64 { return float64(d) / float64(time.Second) }

func (s Seconds) String() string {
	if s == 0 {
		return "-"
	}
	return duration.Text(time.Duration(s))
}

// Fields prints pairs of a name and a value, each on a line. It leaves out pairs with an empty value,
// and accepts untrusted values.
func Fields(w io.Writer, lines [][2]string) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(columns, "%s\t%s\n", line[0], Line(line[1]))
		}
	}
	return columns.Flush()
}

// Text may contain any bytes. In JSON it is a string, or {"base64": …} if it is not UTF-8.
type Text string

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": []byte(t)})
}

// Value is a payload or a result. In JSON an object or a list stays JSON, and anything else is a Text.
type Value string

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	data := []byte(strings.TrimSpace(string(v)))
	if len(data) == 0 || data[0] != '{' && data[0] != '[' || !utf8.Valid(data) || strictjson.CheckDepth("", data) != nil || !json.Valid(data) {
		return Text(v).MarshalJSON()
	}
	return data, nil
}

// JSON prints an indented value.
func JSON(w io.Writer, v any) error { return encode(w, v, "  ") }

// JSONLine prints a value on one line.
func JSONLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	var text, safe bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	// encoding/json does not escape control characters above ASCII, and characters that change the
	// direction of text.
	for _, r := range text.String() {
		if r == '\n' || r > 0xffff || strconv.IsPrint(r) {
			safe.WriteRune(r)
		} else {
			fmt.Fprintf(&safe, `\u%04x`, r)
		}
	}
	_, err := w.Write(safe.Bytes())
	return err
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

// ETA is the time until a job starts. In JSON it is in seconds, or null if it is unknown.
type ETA forecast.Estimate

// MarshalJSON implements json.Marshaler.
func (e ETA) MarshalJSON() ([]byte, error) {
	if !e.Known {
		return []byte("null"), nil
	}
	return json.Marshal(seconds(e.StartsIn))
}

// String returns the end of a sentence such as "starts in 5 min (2026-11-29 23:00:00 UTC)".
func (e ETA) String() string {
	at := func(d time.Duration) string { return DateTime(time.Now().Add(d)) }
	return forecast.Estimate(e).When(Until, at)
}

// Until formats the time until an event. From a minute on, the text also has the event's date.
func Until(d time.Duration) string {
	switch {
	case d <= 0:
		return "now"
	case d < time.Minute:
		return duration.Text(d)
	}
	return fmt.Sprintf("%s (%s)", duration.Text(d), DateTime(time.Now().Add(d)))
}

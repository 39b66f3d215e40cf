package jobspec

import (
	"encoding/json"
	"strings"

	"github.com/headgate/headgate/internal/redact"
)

// HeaderRow is the header of a task that has the row from which the task was made, as JSON.
const HeaderRow = "headgate-row"

// Row is a row of a CSV file. Each column has one value.
type Row struct{ Columns, Values []string }

// String returns the row as a JSON object with the columns in their order.
func (r Row) String() string {
	pairs := make([]string, len(r.Columns))
	for i, column := range r.Columns {
		pairs[i] = redact.Encode(column, "") + ":" + redact.Encode(r.Values[i], "")
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// MarshalJSON implements json.Marshaler.
func (r Row) MarshalJSON() ([]byte, error) { return []byte(r.String()), nil }

// IsZero reports whether there is no row.
func (r Row) IsZero() bool { return len(r.Columns) == 0 }

// RowOf returns the row in a task's headers, or the zero Row if there is none.
func RowOf(headers map[string]string) (r Row) {
	if !json.Valid([]byte(headers[HeaderRow])) {
		return Row{}
	}
	decoder := json.NewDecoder(strings.NewReader(headers[HeaderRow]))
	for {
		token, err := decoder.Token()
		if err != nil {
			return r
		}
		text, isText := token.(string)
		_, isBracket := token.(json.Delim)
		switch {
		case isBracket:
		case !isText:
			return Row{}
		case len(r.Columns) == len(r.Values):
			r.Columns = append(r.Columns, text)
		default:
			r.Values = append(r.Values, text)
		}
	}
}

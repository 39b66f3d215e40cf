package jobspec

import (
	"encoding/json"
	"strings"

	"github.com/headgate/headgate/internal/redact"
)

// HeaderRow is the header of a task that has the row from which the task was made: a list of
// the columns and one of the values.
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
func RowOf(headers map[string]string) Row {
	var stored [2][]string
	err := json.Unmarshal([]byte(headers[HeaderRow]), &stored)
	if err != nil || len(stored[0]) != len(stored[1]) {
		return Row{}
	}
	return Row{stored[0], stored[1]}
}

// header returns the value of HeaderRow.
func (r Row) header() string { return redact.Encode([][]string{r.Columns, r.Values}, "") }

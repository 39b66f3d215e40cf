package results

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/tasks"
)

// WriteCSV writes results as CSV, with the columns of their rows at the end. It calls each twice, first
// to find the columns of all rows.
func WriteCSV(w io.Writer, each func(do func(Result) error) error) error {
	header := []string{"id", "queue", "type", "state", "ended", "status", "error", "saved", "body"}
	var columns []string
	err := each(func(r Result) error {
		for _, column := range r.Row.Columns {
			if !slices.Contains(columns, column) {
				columns, header = append(columns, column), append(header, "row."+column)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	table := csv.NewWriter(w)
	err = table.Write(header)
	if err == nil {
		err = each(func(r Result) error { return table.Write(r.record(columns)) })
	}
	table.Flush()
	return cmp.Or(err, table.Error())
}

// record returns the result as a line of CSV with these columns of rows.
func (r Result) record(columns []string) []string {
	status, saved, body := "", "", string(r.Response.Body)
	var page tasks.CrawlResult
	switch {
	case r.HTTPResult != nil:
		status, saved = strconv.Itoa(r.Status), r.Saved
	case r.Type == tasks.TypeCrawlFetch && json.Unmarshal(r.Response.Body, &page) == nil && page.Status != 0:
		status, saved = strconv.Itoa(page.Status), page.Saved
	}
	if !utf8.ValidString(body) {
		text, _ := cli.Text(body).MarshalJSON() // as in the JSON of the result; it has no error
		body = string(text)
	}
	record := []string{r.ID, r.Queue, r.Type, r.State, r.Ended.UTC().Format(time.RFC3339), status, r.Error, saved, body}
	for _, column := range columns {
		value := ""
		if i := slices.Index(r.Row.Columns, column); i >= 0 {
			value = r.Row.Values[i]
		}
		record = append(record, value)
	}
	return record
}

package jobspec

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/mutate"
)

// What Parse takes is written as a line that it takes again for the same job: that is
// how jobs wait in a file.
func FuzzParse(target *testing.F) {
	f := mutate.More(target)
	for _, seed := range []string{
		`{"type":"http:request","payload":{"url":"https://example.com/?a=<b>&c"},"id":"1"}`,
		`{"type":"a","queue":"b","in":"90s","max_retry":0,"priority":"high","timeout":"1s","unique":"1h","retention":"24h"}`,
		`{"type":"a","at":"2026-01-02T15:04:05.5Z","deadline":"2026-01-02T15:04:05+02:00","payload":1e999}`,
		`{"type":"a"} {}`, `{"type":null}`, `[]`, `null`, `{"type":"a","payload":"\ud800"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		job, err := Parse(line)
		if err != nil {
			if err.Error() == "" {
				t.Errorf("%q: an error without a word", line)
			}
			return
		}
		job = job.Fill(Options{}, config.Default())
		text, err := job.Line()
		if err != nil || strings.ContainsAny(string(text), "\r\n") {
			t.Fatalf("%q is the line %q, %v", line, text, err)
		}
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%q is the line %q, and that: %v", line, text, err)
		}
		var payload bytes.Buffer
		if len(job.Payload) > 0 {
			_ = json.Compact(&payload, job.Payload)
		}
		same := again.Type == job.Type && again.ID == job.ID && again.Queue == job.Queue && bytes.Equal(again.Payload, payload.Bytes()) &&
			again.At.Equal(job.At) && again.Deadline.Equal(job.Deadline) && *again.MaxRetry == *job.MaxRetry &&
			again.Timeout == job.Timeout && again.Retention == job.Retention && again.Unique == job.Unique
		if !same {
			t.Errorf("%q is %+v, and by the line %q it is %+v", line, job, text, again)
		}
	})
}

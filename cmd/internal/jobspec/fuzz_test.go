package jobspec

import (
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// What Parse takes is a job that asynq takes, and what it refuses it says why.
func FuzzParse(target *testing.F) {
	f := fuzzseed.More(target)
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
		if err := job.Validate(); err != nil {
			t.Errorf("%q is taken, and then: %v", line, err)
		}
		_ = job.Fill(Options{}, config.Default()).Task()
	})
}

package jobspec

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/fuzzseed"
	"github.com/headgate/headgate/scheduler"
)

func TestParse_Errors(t *testing.T) {
	const fields = "type, payload, id, queue, in, at, max_retry, retention, priority, timeout, deadline, unique, batch"
	tests := []struct{ line, want string }{
		{`http://a.test/`, `a URL alone is no job: want one JSON object a line, such as {"type":"http:request","payload":{"url":"https://example.com/"}}`},
		{`{}`, "type is missing: want the type of the job, such as http:request"},
		{`{"type":" "}`, "type is missing: want the type of the job, such as http:request"},
		{`{"type":7}`, `type 7: want a text such as "http:request"`},
		{`{"type":"t","Queue":"q"}`, `unknown field "Queue": want one of ` + fields},
		{`{"type":"t","queue":"a b"}`, `queue "a b": want 1 to 100 letters, digits, or _ . : -`},
		{`{"type":"t","id":"a\nb"}`, `id "a\nb": want one line of at most 200 bytes`},
		{`{"type":"t","in":"soon"}`, `in "soon": want a duration in quotes, such as "90s", "24h" or "7d"`},
		{`{"type":"t","in":"1day"}`, `in "1day": want a duration in quotes, such as "90s", "24h" or "7d"`},
		{`{"type":"t","retention":"2 weeks"}`, `retention "2 weeks": want a duration in quotes, such as "90s", "24h" or "7d"`},
		{`{"type":"t","timeout":"90"}`, `timeout "90": want a duration in quotes, such as "90s", "24h" or "7d"`},
		{`{"type":"t","in":5}`, `in 5: want a duration in quotes, such as "90s", "24h" or "7d"`},
		{`{"type":"t","at":5}`, `at 5: want a time in quotes, such as "2026-01-02T15:04:05Z"`},
		{`{"type":"t","in":"-1s"}`, `in -1s: want a duration of 0 or more, from now on`},
		{`{"type":"t","at":"tomorrow"}`, `at "tomorrow": want a time in quotes, such as "2026-01-02T15:04:05Z"`},
		{`{"type":"t","at":"2026-01-02T15:04:05Z","in":"1s"}`, `in 1s: cannot be combined with at`},
		{`{"type":"t","max_retry":2147483648}`, `max_retry 2147483648: want at most 2147483647`},
		{`{"type":"t","max_retry":1.5}`, `max_retry 1.5: want a whole number`},
		{`{"type":"t","retention":"1ms"}`, `retention 1ms: want whole seconds, at least 1s`},
		{`{"type":"t","timeout":"1500ms"}`, `timeout 1.5s: want whole seconds, at least 1s`},
		{`{"type":"t","unique":"-1s"}`, `unique -1s: want whole seconds, at least 1s`},
		{`{"type":"t","priority":"urgent"}`, `priority "urgent": want "high", "normal" or "low"`},
		{`null`, `job null: want a JSON object with the fields ` + fields},
	}
	for _, tt := range tests {
		if _, err := Parse([]byte(tt.line)); err == nil || err.Error() != tt.want {
			t.Errorf("%s\ngot  %v\nwant %s", tt.line, err, tt.want)
		}
	}
}

func TestParse_AllFields(t *testing.T) {
	got, err := Parse([]byte(`{"type":"t","payload":{"<&>":"é"},"id":"i","queue":"q","at":"2030-01-02T15:04:05.5+24:00","max_retry":0,` +
		`"retention":"1s","priority":"low","timeout":"2s","deadline":"2030-02-03T00:00:00Z","unique":"3s"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Job{Type: "t", Payload: []byte(`{"<&>":"é"}`), ID: "i", Options: Options{
		Queue: "q", At: time.Date(2030, 1, 1, 15, 4, 5, 5e8, time.UTC), MaxRetry: new(int), Retention: time.Second,
		Priority: new(scheduler.PriorityLow), Timeout: 2 * time.Second, Deadline: time.Date(2030, 2, 3, 0, 0, 0, 0, time.UTC), Unique: 3 * time.Second,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got, err := Parse([]byte(`{"type":"t","retention":"7d","unique":"1w"}`)); got.Retention != 168*time.Hour || got.Unique != 168*time.Hour || err != nil {
		t.Errorf("retention is %s and unique %s, %v; want a week", got.Retention, got.Unique, err)
	}
	if got, err := Parse([]byte(`{"type":"t","in":"90s"}`)); got.In != 90*time.Second || err != nil {
		t.Errorf("in is %s, %v", got.In, err)
	}
}

func TestFill_Precedence(t *testing.T) {
	conf, err := config.Parse("test", []byte("tasks: {\"http:request\": {max_retry: 3, timeout: 7s}}"))
	if err != nil {
		t.Fatal(err)
	}
	number := func(n int) *int { return &n }
	tests := []struct {
		name     string
		job      Job
		defaults Options
		retries  int
		timeout  time.Duration
		queue    string
	}{
		{"all from the job", Job{Type: "http:request", Options: Options{MaxRetry: number(0), Timeout: time.Second, Queue: "a"}}, Options{MaxRetry: number(1), Timeout: 2 * time.Second, Queue: "b"}, 0, time.Second, "a"},
		{"all from the flags", Job{Type: "http:request"}, Options{MaxRetry: number(1), Timeout: 2 * time.Second, Queue: "b"}, 1, 2 * time.Second, "b"},
		{"from the config", Job{Type: "http:request"}, Options{}, 3, 7 * time.Second, "default"},
		{"asynq's own", Job{Type: "other"}, Options{}, 25, 0, "default"},
	}
	for _, tt := range tests {
		got := tt.job.Fill(tt.defaults, conf)
		if *got.MaxRetry != tt.retries || got.Timeout != tt.timeout || got.Queue != tt.queue || got.ID == "" {
			t.Errorf("%s: %d retries, timeout %s, queue %s, id %q; want %d, %s, %s and an id",
				tt.name, *got.MaxRetry, got.Timeout, got.Queue, got.ID, tt.retries, tt.timeout, tt.queue)
		}
	}
}

// asynq accepts each job that Parse accepts. Every error has a text.
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
				t.Errorf("%q: an error without a text", line)
			}
			return
		}
		if err := job.Validate(); err != nil {
			t.Errorf("%q is accepted, and then: %v", line, err)
		}
		_ = job.Fill(Options{}, config.Default()).Task()
	})
}

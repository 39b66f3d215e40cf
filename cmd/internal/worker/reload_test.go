package worker

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// A config that Redis does not take whole has changed limits already, and that is said;
// nothing that is wrong with the file itself changes any.
func TestReload_PartlyWrittenConfig(t *testing.T) {
	mini, rdb := redistest.Mini(t)
	quiet := slog.New(slog.DiscardHandler)
	said := new(bytes.Buffer)
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	w := &Worker{log: slog.New(slog.NewTextHandler(said, nil))}
	w.config.Store(config.Default())
	w.options = Options{File: file, Load: func() (*config.Config, error) { return config.Load(file) }}
	w.limiter = waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet}))
	server, err := scheduler.NewServer(rdb, scheduler.Rules{RuleFor: config.RuleIn(w.config.Load)}, asynq.Config{Logger: asynqLog{quiet}}, scheduler.WithLimiter(w.limiter.Limiter), scheduler.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	read := func(text string) string {
		t.Helper()
		said.Reset()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if w.readAgain(t.Context()) == nil {
			t.Error("it was read")
		}
		return said.String()
	}
	if got := read("limits: {api: {kind: funnel, rate: none}}"); !strings.Contains(got, `msg="the config is unchanged"`) {
		t.Error(got)
	}
	mini.SetError("LOADING Redis is loading the dataset in memory")
	if got := read("limits: {api: {kind: funnel, rate: 1/s}}"); !strings.Contains(got, "limits may have changed already") {
		t.Error(got)
	}
}

func TestNeedRestart(t *testing.T) {
	old, next := config.Default(), config.Default()
	next.Limits = []throttle.Limit{{Name: "new"}}
	if got := needRestart(old, next); len(got) > 0 {
		t.Errorf("a new limit needs a restart for %v", got)
	}
	next.Concurrency, next.Queues, next.Scope = 3, config.Queues{"q": {Weight: 1}}, "other"
	if diff := cmp.Diff([]string{"scope", "concurrency", "queues"}, needRestart(old, next)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	const text = `
redis: rediss://:secret@h/1?pool_size=5
commands: {a: {run: [ls, -l, "${host(payload.url)}"], timeout: 1m, env: {A: "1 B:2"}}}
crawl: {include: [^a, ^b]}
http: {proxy: http://p:1, tls: {ca: a.pem}, allow_private: [10.0.0.0/8]}
tasks: {"exec:a": {priority: payload.p}}
`
	for _, tt := range []struct{ from, to, field string }{
		{"", "", ""},
		{"1m", "2m", "commands"},
		{"url", "uri", "commands"},
		{"secret", "other", "redis"},
		{"a.pem", "b.pem", "http"},
		{"payload.p", "payload.q", ""},
		{`-l, "`, `"-l `, "commands"},
		{`"1 B:2"`, `"1", B: "2"`, "commands"},
		{"^b", "^c", "crawl"},
		{"allow_private", "save_dir: d, allow_private", "http"},
	} {
		old, err := config.Parse("f", []byte(text))
		next, other := config.Parse("f", []byte(strings.Replace(text, tt.from, tt.to, 1)))
		if err != nil || other != nil {
			t.Fatal(err, other)
		}
		if got := strings.Join(needRestart(old, next), ", "); got != tt.field {
			t.Errorf("%s instead of %s needs a restart for %q, want %q", tt.to, tt.from, got, tt.field)
		}
	}
}

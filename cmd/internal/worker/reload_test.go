package worker

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

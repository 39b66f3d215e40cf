package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/testutil/proctest"
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
	w.waitDB = waitdb.New(throttle.New(rdb, throttle.Options{Logger: quiet}))
	server, err := scheduler.NewServer(rdb, scheduler.Rules{RuleFor: config.RuleIn(w.config.Load)}, asynq.Config{Logger: asynqLog{quiet}}, scheduler.WithLimiter(w.waitDB.Limiter), scheduler.WithLogger(quiet))
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
		if w.reload(t.Context()) == nil {
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

// watchText watches a file, which is as it is now, until the test ends. The channel has each text
// that is read.
func watchText(t *testing.T, path string) <-chan string {
	t.Helper()
	read := make(chan string, 100)
	w := &Worker{log: slog.New(slog.DiscardHandler)}
	w.options.File = path
	w.options.Text, _ = os.ReadFile(path)
	w.options.Load = func() (*config.Config, error) {
		read <- string(w.options.Text)
		return nil, errors.New("only its text counts here")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.watch(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	return read
}

// TestWatch_Burst: a file is read once, after the last of many writes.
func TestWatch_Burst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "headgate.yaml")
		proctest.Replace(t, path, "0")
		read := watchText(t, path)
		for i := range 20 {
			time.Sleep(readInterval / 3)
			proctest.Replace(t, path, fmt.Sprint(i+1))
		}
		time.Sleep(3 * readInterval)
		if len(read) != 1 || <-read != "20" {
			t.Errorf("the file was not read once, with its last text")
		}
	})
}

// TestWatchChanges: whatever an editor, an operator or a container platform does to the file, to a
// link or to a folder is noticed, and so is the next edit.
func TestWatchChanges(t *testing.T) {
	write := func(t *testing.T, path, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	do := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	relink := func(t *testing.T, target, link string) { // in one step, as ln -sfn and mv do
		t.Helper()
		do(t, errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(target, link+".new"), os.Rename(link+".new", link)))
	}
	const file = "etc/headgate.yaml"
	for _, tt := range []struct {
		name          string
		begin, change func(t *testing.T, in string)
		edit          string // what is edited afterwards
	}{
		{"an edit", func(t *testing.T, in string) { write(t, in+file, "old") }, func(t *testing.T, in string) { write(t, in+file, "new") }, file},
		{"a rename over it", func(t *testing.T, in string) { write(t, in+file, "old") }, func(t *testing.T, in string) { proctest.Replace(t, in+file, "new") }, file},
		{"a file that was not there", func(t *testing.T, in string) { do(t, os.Mkdir(in+"etc", 0o755)) }, func(t *testing.T, in string) { write(t, in+file, "new") }, file},
		{"a kubelet's swap", func(t *testing.T, in string) {
			write(t, in+"etc/..1/headgate.yaml", "old")
			relink(t, "..1", in+"etc/..data")
			relink(t, "..data/headgate.yaml", in+file)
		}, func(t *testing.T, in string) {
			write(t, in+"etc/..2/headgate.yaml", "new")
			relink(t, "..2", in+"etc/..data")
			do(t, os.RemoveAll(in+"etc/..1"))
		}, "etc/..2/headgate.yaml"},
		{"a folder that is deleted and made", func(t *testing.T, in string) { write(t, in+file, "old") }, func(t *testing.T, in string) {
			do(t, os.RemoveAll(in+"etc"))
			write(t, in+file, "new")
		}, file},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in := t.TempDir() + "/"
				tt.begin(t, in)
				read := watchText(t, in+file)
				sees := func(want string) {
					t.Helper()
					time.Sleep(3 * readInterval)
					synctest.Wait()
					if len(read) == 0 {
						t.Fatalf("%s is not read", want)
					}
					if text := <-read; text != want {
						t.Fatalf("%q is read, want %q", text, want)
					}
				}
				tt.change(t, in)
				sees("new")
				write(t, in+tt.edit, "edited")
				sees("edited")
			})
		})
	}
}

package redistest_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestServersShareNothing(t *testing.T) {
	a, b := redistest.Real(t), redistest.Real(t)
	if err := a.Set(t.Context(), "key", "of a", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Get(t.Context(), "key").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("the other server has %q, %v; want redis.Nil", got, err)
	}
}

func TestRestart(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"the data is gone with the process", nil, ""},
		{"an append-only file keeps it", []string{"--appendonly", "yes"}, "value"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := redistest.Run(t, tt.args...)
			addr, rdb := s.Addr(), s.Client()
			defer rdb.Close()
			if err := rdb.Set(t.Context(), "key", "value", 0).Err(); err != nil {
				t.Fatal(err)
			}

			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
			if err := rdb.Ping(t.Context()).Err(); err == nil {
				t.Error("the stopped server still answers")
			}
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			if s.Addr() != addr {
				t.Errorf("it came back at %s, was at %s", s.Addr(), addr)
			}
			got, err := rdb.Get(t.Context(), "key").Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("after the restart key is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRestartOfARunningServer(t *testing.T) {
	if err := redistest.Run(t).Restart(); err == nil {
		t.Error("a running server was started once more")
	}
}

func TestStopTwiceAndAfterACrash(t *testing.T) {
	s := redistest.Run(t)
	rdb := s.Client()
	defer rdb.Close()
	// The connection breaks before an answer, which the client calls an error.
	_ = rdb.ShutdownNoSave(t.Context()).Err()
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseRemovesTheFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Errorf("Close left %v", left)
	}
}

func TestRefusedArgumentIsReported(t *testing.T) {
	s, err := redistest.Start("--no-such-setting", "1")
	if err == nil {
		s.Close()
		t.Fatal("redis-server took a setting that does not exist")
	}
	if !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("the error does not name the setting: %v", err)
	}
}

func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	fake := &fatal{}
	func() {
		defer func() { _ = recover() }()
		redistest.Real(fake)
	}()
	const want = "redis-server is not installed: run make test"
	if fake.message != want {
		t.Errorf("the test fails with %q, want %q", fake.message, want)
	}
}

// fatal is a test that keeps what it was failed with. It panics to end the
// caller, as a test would.
type fatal struct{ message string }

func (*fatal) Helper()        {}
func (*fatal) Cleanup(func()) {}
func (f *fatal) Fatalf(format string, args ...any) {
	f.message = fmt.Sprintf(format, args...)
	panic(f)
}

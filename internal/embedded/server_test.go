package embedded

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func start(t *testing.T, f Folder) *Server {
	t.Helper()
	unlock, err := f.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	s, err := f.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestServerIsARedisThatFindFinds(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), "not there yet"))
	if addr, ok := f.Find(t.Context()); ok {
		t.Errorf("found %s before the start", addr)
	}
	s := start(t, f)
	addr, ok := f.Find(t.Context())
	if !ok || addr != s.Addr() {
		t.Fatalf("Find gives %q, %v; want %q", addr, ok, s.Addr())
	}
	rdb := client(t, s)
	if err := rdb.Set(t.Context(), "key", "value", time.Hour).Err(); err != nil {
		t.Error(err)
	}

	stat, err := os.Stat(f.addrFile())
	if err != nil {
		t.Fatal(err)
	}
	if stat.Mode().Perm() != 0o600 {
		t.Errorf("the address file has mode %v, want 0600", stat.Mode().Perm())
	}
}

// The keys' expiry follows the clock, so no key outlives its time.
func TestKeysExpire(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	rdb := client(t, s)
	if err := rdb.Set(t.Context(), "key", "value", time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	left := int64(1)
	for range 1_000_000 { // round trips, for which the clock is looked at some hundred times
		if left = rdb.Exists(t.Context(), "key").Val(); left == 0 {
			break
		}
	}
	if left != 0 {
		t.Error("the key did not expire")
	}
}

// A command that looked at all keys would need at least a list of their names.
func TestACommandDoesNotLookAtAllKeys(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	const keys, commands = 20_000, 1000
	for i := range keys {
		if err := s.redis.Set(strconv.Itoa(i), ""); err != nil {
			t.Fatal(err)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range commands {
		s.redis.Exists("0")
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / commands; each > keys {
		t.Errorf("a command takes %d bytes of memory where there are %d keys", each, keys)
	}
}

func TestCloseLeavesNoAddress(t *testing.T) {
	f := Folder(t.TempDir())
	s := start(t, f)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(f.addrFile()); !os.IsNotExist(err) {
		t.Errorf("the address file after Close: %v", err)
	}
	start(t, f)
}

func TestCloseKeepsAnothersAddress(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	first.end() // It hangs, say, and is taken for dead.
	second := start(t, f)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if addr, ok := f.Find(t.Context()); addr != second.Addr() || !ok {
		t.Errorf("Find gives %q, %v; want %q", addr, ok, second.Addr())
	}
}

// Who hung, and is closed after another has come and gone, has lost what came to it since.
func TestCloseTellsOfAnotherThatCameAndWent(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	if err := client(t, first).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first.end() // It hangs, say, and is taken for dead.
	second := start(t, f)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err == nil || !strings.Contains(err.Error(), "another embedded Redis has come to run meanwhile, and has ended") {
		t.Errorf("Close gives %v", err)
	}
}

func TestFindIgnoresWhatACrashLeft(t *testing.T) {
	other := start(t, Folder(t.TempDir()))
	tests := []struct{ name, file string }{
		{"nobody is there", `{"addr":"/nowhere/embedded.sock","id":"A"}`},
		{"another worker is there", `{"addr":"` + other.Addr() + `","id":"A"}`},
		{"the file is damaged", `{"addr":"` + other.Addr()},
		{"the file is empty", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := Folder(t.TempDir())
			if err := os.WriteFile(f.addrFile(), []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if addr, ok := f.Find(t.Context()); ok {
				t.Errorf("found %s", addr)
			}
			start(t, f)
		})
	}
}

func TestOneServerAtATime(t *testing.T) {
	f := Folder(t.TempDir())
	var wg sync.WaitGroup
	hosts, addrs, errs := make([]*Host, 8), make([]string, 8), make([]error, 8)
	for i := range hosts {
		hosts[i] = f.NewHost(nil)
		wg.Go(func() { addrs[i], errs[i] = hosts[i].Addr(t.Context()) })
	}
	wg.Wait()
	running := 0
	for i, h := range hosts {
		if h.Runs() {
			running++
		}
		if errs[i] != nil || addrs[i] != addrs[0] {
			t.Errorf("host %d: %q, %v; want %s", i, addrs[i], errs[i], addrs[0])
		}
		defer h.Close()
	}
	if running != 1 {
		t.Errorf("%d servers run", running)
	}
}

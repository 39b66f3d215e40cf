package embedded

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func spool(t *testing.T, f Folder, lines ...string) {
	t.Helper()
	if _, err := f.Spool("", asBytes(lines)); err != nil {
		t.Fatal(err)
	}
}

// take starts a server, takes the spool, and calls done if told to. Then the
// server is gone again.
func take(t *testing.T, f Folder, finish bool) []string {
	t.Helper()
	s, err := f.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines, done := s.Spooled()
	if finish {
		if err := done(); err != nil {
			t.Fatal(err)
		}
	}
	return asStrings(lines)
}

func asBytes(lines []string) [][]byte {
	var all [][]byte
	for _, line := range lines {
		all = append(all, []byte(line))
	}
	return all
}

func asStrings(lines [][]byte) []string {
	var all []string
	for _, line := range lines {
		all = append(all, string(line))
	}
	return all
}

func wantLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestSpoolIsTakenOnceInOrder(t *testing.T) {
	f := Folder(t.TempDir())
	wantLines(t, "an empty spool", take(t, f, true))
	spool(t, f, `{"n":1}`, `{"n":2}`)
	spool(t, f, `{"n":3}`)
	wantLines(t, "the first take", take(t, f, true), `{"n":1}`, `{"n":2}`, `{"n":3}`)
	wantLines(t, "the second take", take(t, f, true))
}

func TestTakenWithoutDoneIsTakenAgain(t *testing.T) {
	f := Folder(t.TempDir())
	spool(t, f, "1")
	wantLines(t, "the take that crashes", take(t, f, false), "1")
	spool(t, f, "2")
	wantLines(t, "the next that crashes", take(t, f, false), "1", "2")
	spool(t, f, "3")
	wantLines(t, "the take that ends well", take(t, f, true), "1", "2", "3")
	wantLines(t, "the take after it", take(t, f, true))
}

func TestDoneKeepsWhatCameLater(t *testing.T) {
	f := Folder(t.TempDir())
	spool(t, f, "early")
	s := start(t, f)
	lines, done := s.Spooled()
	wantLines(t, "the take", asStrings(lines), "early")
	s.Close()
	spool(t, f, "late")
	if err := done(); err != nil {
		t.Fatal(err)
	}
	wantLines(t, "the next take", take(t, f, true), "late")
}

func TestSpoolSendsToARunningServer(t *testing.T) {
	f := Folder(t.TempDir())
	s := start(t, f)
	_, err := f.Spool("", asBytes([]string{"1"}))
	if e, ok := errors.AsType[*RunningError](err); !ok || e.Addr != s.Addr() {
		t.Errorf("Spool gives %v, want the address %s", err, s.Addr())
	}
	s.Close()
	wantLines(t, "the spool", take(t, f, true))
}

func TestTornLineIsDropped(t *testing.T) {
	f := Folder(t.TempDir())
	tear := func() {
		t.Helper()
		file, err := os.OpenFile(f.spoolFile(), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString("a long line that a crash cut sho"); err != nil {
			t.Fatal(err)
		}
	}
	tear()
	spool(t, f, "1")
	tear()
	spool(t, f, "2", "3")
	tear()
	wantLines(t, "the take", take(t, f, true), "1", "2", "3")
}

func TestSpoolRefusesWhatIsNotALine(t *testing.T) {
	f := Folder(t.TempDir())
	for _, bad := range []string{"", "two\nlines", "cr\r"} {
		_, err := f.Spool("", asBytes([]string{"good", bad}))
		if err == nil || !strings.Contains(err.Error(), "spool line 2") {
			t.Errorf("Spool(%q) gives %v", bad, err)
		}
	}
	wantLines(t, "the spool", take(t, f, true))
}

func TestSpoolFromManyAtOnce(t *testing.T) {
	f := Folder(t.TempDir())
	var wg sync.WaitGroup
	errs := make([]error, 10)
	var want []string
	for i := range errs {
		line := fmt.Sprintf("%d: %s", i, strings.Repeat("x", 10_000))
		want = append(want, line)
		wg.Go(func() { _, errs[i] = f.Spool("", asBytes([]string{line})) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	got := take(t, f, true)
	slices.Sort(got)
	wantLines(t, "the take", got, want...)
}

func TestSpoolInTheDefaultFolder(t *testing.T) {
	setEnv(t, t.TempDir(), t.TempDir())
	f, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Spool("", asBytes([]string{"1"})); err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(f.spoolFile())
	if err != nil {
		t.Fatal(err)
	}
	if stat.Mode().Perm() != 0o600 {
		t.Errorf("the spool has mode %v, want 0600", stat.Mode().Perm())
	}
	wantLines(t, "the take", take(t, f, true), "1")
}

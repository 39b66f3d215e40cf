package warc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func exchangeOf(t *testing.T, text, body string) Exchange {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return Exchange{
		Request:  &http.Request{Method: "GET", URL: u, Header: http.Header{"User-Agent": {"headgate"}}},
		Response: &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/html"}}},
		Body:     []byte(body), At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Address: "192.0.2.1",
	}
}

func archives(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// npm's warcio reads what a folder holds after a crash in the middle of a record.
func TestWarcioReadsWhatACrashLeft(t *testing.T) {
	dir := t.TempDir()
	first := &Folder{Dir: dir, Info: []Field{{"software", "headgate"}}}
	for _, path := range []string{"/a", "/b"} {
		if _, _, err := first.Add("it", exchangeOf(t, "http://a.test"+path, "<p>"+path)); err != nil {
			t.Fatal(err)
		}
	}
	left := archives(t, dir)[0]
	opened := first.files["it"].to
	if _, err := opened.Write([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00half of a record")); err != nil {
		t.Fatal(err)
	}
	_ = opened.Close() // as the process's end does

	second := &Folder{Dir: dir}
	if _, _, err := second.Add("it", exchangeOf(t, "http://a.test/c", "<p>/c")); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if got := archives(t, dir); len(got) != 2 || strings.HasSuffix(got[0]+got[1], unfinished) {
		t.Fatalf("the folder holds %q, want two finished files", got)
	}
	got := readWithWarcio(t, strings.TrimSuffix(left, unfinished))
	want := []string{"warcinfo ", "response http://a.test/a <p>/a", "request http://a.test/a ", "response http://a.test/b <p>/b", "request http://a.test/b "}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("warcio reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// It knows of a revisit what that is, and which record it refers to.
func TestWarcioReadsRevisits(t *testing.T) {
	f := &Folder{Dir: t.TempDir()}
	e := exchangeOf(t, "http://a.test/a", "<p>a")
	for _, status := range []int{200, 200, 304} {
		if e.Response.StatusCode = status; status == 304 {
			e.Body = nil
		}
		_, at, err := f.Add("it", e)
		if err != nil {
			t.Fatal(err)
		}
		e.Before, e.At = at.Capture, e.At.Add(time.Hour)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	const first = " of http://a.test/a 2026-01-02T03:04:05.000000Z"
	want := []string{
		"warcinfo ", "response http://a.test/a <p>a", "request http://a.test/a ",
		"revisit http://a.test/a 200 " + identical + first, "request http://a.test/a ",
		"revisit http://a.test/a 304 " + notModified + first, "request http://a.test/a ",
	}
	if got := readWithWarcio(t, archives(t, f.Dir)[0]); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("warcio reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Recover finishes what dead processes have left, under any name, and leaves alone
// what is written to.
func TestRecoverIsForAllNames(t *testing.T) {
	dir := t.TempDir()
	dead, alive := &Folder{Dir: dir}, &Folder{Dir: dir}
	for name, folder := range map[string]*Folder{"first": dead, "second": dead, "third": alive} {
		if _, _, err := folder.Add(name, exchangeOf(t, "http://a.test/", "x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range dead.files {
		_ = file.to.Close() // as the process's end does
	}
	empty := filepath.Join(dir, "fourth-20260102030405-00000000.warc.gz"+unfinished)
	if err := os.WriteFile(empty, []byte("\x1f\x8b"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&Folder{Dir: dir}).Recover(); err != nil {
		t.Fatal(err)
	}
	got := archives(t, dir)
	if len(got) != 3 || strings.HasSuffix(got[0], unfinished) || strings.HasSuffix(got[1], unfinished) || !strings.HasSuffix(got[2], unfinished) {
		t.Errorf("the folder holds %q, want two finished files and the one that is written to", got)
	}
	if err := alive.Close(); err != nil {
		t.Error(err)
	}
}

// A file may be taken for one that a dead process left between the moments when it is
// made and when it is locked. Then there is another, and nothing is lost.
func TestAFileIsTakenBeforeItIsLocked(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"removed": os.Remove,
		"renamed": finish,
		"another": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		file, err := os.Create(filepath.Join(t.TempDir(), "it.warc.gz"+unfinished))
		if err == nil {
			err = take(file.Name())
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := own(file); !errors.Is(err, errTaken) {
			t.Errorf("%s: %v, want that it is taken", name, err)
		}
		_ = file.Close()
	}
	tries := 0
	f := &Folder{Dir: t.TempDir(), open: func(name string) (appender, error) {
		if tries++; tries == 1 {
			return nil, errTaken
		}
		return openFile(name)
	}}
	if _, _, err := f.Add("it", exchangeOf(t, "http://a.test/", "x")); err != nil || tries != 2 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A locked file is another's, also when it was opened before that moved it away.
func TestALockedFileIsAnothers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it.warc.gz"+unfinished)
	first, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := own(second); !errors.Is(err, errTaken) {
		t.Errorf("%v, want that it is taken", err)
	}
}

// Names and folders are no patterns.
func TestRecoverTakesNamesAsTheyAre(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[a]")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	dead := &Folder{Dir: dir}
	for _, name := range []string{"a*", "ab"} {
		if _, _, err := dead.Add(name, exchangeOf(t, "http://a.test/", "x")); err != nil {
			t.Fatal(err)
		}
		_ = dead.files[name].to.Close() // as the process's end does
	}
	next := &Folder{Dir: dir}
	if _, _, err := next.Add("a*", exchangeOf(t, "http://a.test/", "x")); err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	left := 0
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) {
			left++
		}
	}
	if len(entries) != 3 || left != 1 || err != nil {
		t.Errorf("the folder holds %v, %v; want three files, of which that of ab is unfinished", entries, err)
	}
}

// readWithWarcio has npm's warcio read a file. npm installs it once, into the
// user's cache.
func readWithWarcio(t *testing.T, name string) []string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "headgate-test", "warcio-2.4.11")
	if _, err := os.Stat(filepath.Join(dir, "installed")); err != nil {
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755), os.CopyFS(dir, os.DirFS("testdata/warcio"))); err != nil {
			t.Fatal(err)
		}
		npm := exec.Command("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund")
		npm.Dir = dir
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm install warcio: %v: %s", err, out)
		}
		if err := os.WriteFile(filepath.Join(dir, "installed"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read, err := os.ReadFile("testdata/warcio/read.mjs")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "read.mjs"), read, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	node := exec.Command("node", "read.mjs", name)
	node.Dir = dir
	var stderr bytes.Buffer
	node.Stderr = &stderr
	out, err := node.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("warcio: %v: %s", err, stderr.String())
	}
	var records []string
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var r struct {
			Type, URL, Text, Profile, RefersTo, RefersToDate string
			Status                                           int
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Type == "revisit" {
			r.Text += fmt.Sprintf("%d %s of %s %s", r.Status, r.Profile, r.RefersTo, r.RefersToDate)
		}
		records = append(records, r.Type+" "+strings.TrimSpace(r.URL+" "+r.Text)+trailing(r.URL, r.Text))
	}
	return records
}

// trailing keeps the space before a text that is empty.
func trailing(url, text string) string {
	if url != "" && text == "" {
		return " "
	}
	return ""
}

// full is a disk that has no room after some bytes.
type full struct {
	appender
	room int
}

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		n, _ := f.appender.Write(p[:f.room])
		return n, syscall.ENOSPC
	}
	f.room -= len(p)
	return f.appender.Write(p)
}

// A full disk leaves whole records, and what comes after it has room is kept.
func TestFolderOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	var disk *full
	f := &Folder{Dir: dir, open: func(name string) (appender, error) {
		file, err := openFile(name)
		disk = &full{file, 1500}
		return disk, err
	}}
	if _, _, err := f.Add("it", exchangeOf(t, "http://a.test/", "x")); err != nil {
		t.Fatal(err)
	}
	size := f.files["it"].size
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(i * i * 7919 >> 3)
	}
	disk.room = 100
	if _, _, err := f.Add("it", exchangeOf(t, "http://a.test/big", string(noise))); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want no space left", err)
	}
	disk.room = 1 << 20
	_, at, err := f.Add("it", exchangeOf(t, "http://a.test/after", "y"))
	if err != nil || at.Offset != size {
		t.Errorf("after it: at %d, %v; want at %d, where the last whole record ends", at.Offset, err, size)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(archives(t, dir)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, _ := file.Stat()
	if n, err := whole(file); err != nil || n != info.Size() {
		t.Errorf("%d of %d bytes are whole records, %v", n, info.Size(), err)
	}
}

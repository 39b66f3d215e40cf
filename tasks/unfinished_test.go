package tasks

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Only files of interrupted saves are deleted, and only when no process can still write them.
func TestRemoveUnfinished(t *testing.T) {
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	old, mine := time.Now().Add(-UnfinishedLifetime-time.Minute), unfinishedName()
	for name, at := range map[string]time.Time{
		mine:                      old,
		unfinishedName():          old,
		".headgate-fresh.part":    old, // not a name that a save makes
		"film.part":               old,
		"page.html":               old,
		"sub/" + unfinishedName(): old, // a save writes to the folder itself
	} {
		path := filepath.Join(dir, name)
		must(os.MkdirAll(filepath.Dir(path), 0o755))
		must(os.WriteFile(path, []byte("x"), 0o644))
		must(os.Chtimes(path, at, at))
	}
	fresh := filepath.Join(dir, unfinishedName())
	must(os.WriteFile(fresh, []byte("x"), 0o644))
	folder := filepath.Join(dir, unfinishedName())
	must(os.Mkdir(folder, 0o755))
	must(os.Chtimes(folder, old, old))
	removed, err := RemoveUnfinished(dir)
	if err != nil || removed != 2 {
		t.Errorf("removed %d files, %v; want 2", removed, err)
	}
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{".headgate-fresh.part", filepath.Base(fresh), filepath.Base(folder), "film.part", "page.html", "sub"}
	if slices.Sort(want); !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if _, err := RemoveUnfinished(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a folder that does not exist")
	}
}

// A save that fails leaves no file, whatever ended it.
func TestSave_LeavesNothing(t *testing.T) {
	for name, body := range map[string]func([]byte) (int, error){
		"the body breaks off": func([]byte) (int, error) { return 0, os.ErrDeadlineExceeded },
		"the disk is full":    func([]byte) (int, error) { return 0, &os.PathError{Op: "write", Path: "x", Err: os.ErrInvalid} },
	} {
		dir := t.TempDir()
		if _, _, _, err := saveFile(dir, "page.html", readFunc(body)); err == nil {
			t.Errorf("%s: no error", name)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s: %v are left, %v", name, entries, err)
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

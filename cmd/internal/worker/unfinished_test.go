package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// part creates the file of an interrupted save.
func part(t *testing.T, dir string, number int, age time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf(".headgate-00000000-0000-4000-8000-%012d.part", number))
	at := time.Now().Add(-age)
	if err := errors.Join(os.WriteFile(path, []byte("x"), 0o644), os.Chtimes(path, at, at)); err != nil {
		t.Fatal(err)
	}
	return path
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// A worker deletes the files of interrupted saves when it starts, and later ones within a day, in the
// folders of calls and of crawls.
func TestUnfinishedSaves_Deleted(t *testing.T) {
	calls, crawls := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		old, oldPage, fresh := part(t, calls, 1, 30*time.Hour), part(t, crawls, 2, 30*time.Hour), part(t, calls, 3, time.Hour)
		upstreamWorker(t, parse(t, fmt.Sprintf("http: {save_dir: %q}\ncrawl: {save_dir: %q}", calls, crawls)), nil)
		time.Sleep(time.Minute)
		if exists(old) || exists(oldPage) || !exists(fresh) {
			t.Errorf("at the start: old %t, page %t, fresh %t; want only the fresh one", exists(old), exists(oldPage), exists(fresh))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		fresh := part(t, calls, 4, time.Hour)
		ctx, stop := context.WithTimeout(t.Context(), 23*time.Hour)
		defer stop()
		(&Worker{startConfig: parse(t, fmt.Sprintf("http: {save_dir: %q}", calls)), log: slog.New(slog.DiscardHandler)}).removeUnfinished(ctx)
		if exists(fresh) {
			t.Error("the file is still there when it is a day old")
		}
	})
}

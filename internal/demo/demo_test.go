package demo

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// Of a demo nothing stays for good in somebody else's Redis.
func TestNothingStays(t *testing.T) {
	m := miniredis.RunT(t)
	if _, err := Run(t.Context(), Options{Jobs: 3, Rate: 20, Redis: "redis://" + m.Addr(), Progress: io.Discard}); err != nil {
		t.Fatal(err)
	}
	for _, key := range m.Keys() {
		if strings.Contains(key, "{demo-") && m.TTL(key) == 0 {
			t.Errorf("%s stays", key)
		}
	}
}

// Nor does a folder, of a demo that is stopped as it starts.
func TestNothingStaysOnTheDisk(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(ctx, Options{Jobs: 3, Rate: 20, Progress: io.Discard}); err == nil {
		t.Error("it has run")
	}
	if left, err := os.ReadDir(folder); len(left) > 0 || err != nil {
		t.Errorf("left are %v, %v", left, err)
	}
}

package page_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "write pictures of the page into this folder")

// TestScreenshots writes the pictures that the documents show, with make
// screenshots: of a worker that runs, after a quarter of an hour of its work. By
// itself it takes them after half a minute of that, and forgets them.
func TestScreenshots(t *testing.T) {
	folder, past := *screenshots, 15*time.Minute
	if folder == "" {
		folder, past = t.TempDir(), 30*time.Second
	}
	w := after(t, past)
	url := w.serve()
	ctx := browse(t, 3*time.Minute)
	for _, shot := range []struct {
		name, path    string
		width, height int64
		dark          bool
	}{
		{"page", "/?open=host", 1280, 1000, false},
		{"page-dark", "/", 1280, 760, true},
		{"page-phone", "/", 390, 844, false},
	} {
		var picture []byte
		do(ctx, t, shot.name, view(shot.width, shot.height, shot.dark), chromedp.Navigate(url+shot.path),
			until(`document.querySelector('#live .says').textContent.includes(', since ') && document.querySelectorAll('.chart').length === document.querySelectorAll('.chart canvas').length`),
			until(`document.getAnimations().length === 0`), chromedp.CaptureScreenshot(&picture))
		path := filepath.Join(folder, shot.name+".png")
		w.must(os.WriteFile(path, picture, 0o644))
		if len(picture) < 10_000 || len(picture) > 200_000 {
			t.Errorf("%s has %d bytes, want 10 to 200 kB", path, len(picture))
		}
	}
}

// view is a window of a size, in a light or a dark surrounding.
func view(width, height int64, dark bool) chromedp.Action {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	return chromedp.Tasks{
		chromedp.EmulateViewport(width, height),
		chromedp.ActionFunc(func(ctx context.Context) error {
			return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}).Do(ctx)
		}),
	}
}

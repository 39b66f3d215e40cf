package page_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

var screenshots = flag.String("screenshots", "", "write pictures of the page into this folder")

// TestScreenshots writes the pictures that the documents show, with make
// screenshots.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots FOLDER")
	}
	w := realWorld(t)
	url := w.busy()
	for _, shot := range []struct {
		name          string
		path          string
		width, height int64
		dark, phone   bool
	}{
		{"page", "/?open=host", 1280, 1000, false, false},
		{"page-dark", "/", 1280, 760, true, false},
		{"page-phone", "/", 390, 844, false, true},
	} {
		ctx := browse(t, time.Minute)
		var picture []byte
		do(t, ctx, view(shot.width, shot.height, shot.dark, shot.phone), chromedp.Navigate(url+shot.path),
			chromedp.WaitVisible("#live table"), chromedp.Sleep(2500*time.Millisecond), chromedp.CaptureScreenshot(&picture))
		path := filepath.Join(*screenshots, shot.name+".png")
		w.must(os.WriteFile(path, picture, 0o644))
		if len(picture) > 200_000 {
			t.Errorf("%s has %d bytes, want at most 200 kB", path, len(picture))
		}
	}
}

// view is a window of a size, in a light or a dark surrounding.
func view(width, height int64, dark, phone bool) chromedp.Action {
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

// busy is a world as an operator may find it, and where its page is.
func (w *world) busy() string {
	ctx := w.t.Context()
	hosts := []string{"news.example", "slow.example", "api.example", "blog.example", "shop.example", "wiki.example", "docs.example"}
	n := 0
	for i, host := range hosts {
		for range 1204 / (i*i*2 + 1) {
			n++
			w.enqueue(fmt.Sprintf("page-%05d", n), "host", host)
		}
	}
	for i := range 40 {
		w.enqueue(fmt.Sprintf("letter-%02d", i), "mail", "")
	}
	for i := range 30 {
		w.enqueue(fmt.Sprintf("render-%02d", i), "slots", "")
	}
	for i := range 5 {
		w.enqueue(fmt.Sprintf("broken-%d", i), "everyone", "")
	}
	_, err := w.limiter.AllowN(ctx, "api-daily", "", 2000)
	w.must(err)
	for i := range 61 {
		w.enqueue(fmt.Sprintf("quota-%02d", i), "api-daily", "")
	}
	w.run(700 * time.Millisecond)
	return w.serve()
}

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

	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

var screenshots = flag.String("screenshots", "", "write pictures of the page into this folder")

// TestScreenshots takes the pictures of the documents, with make screenshots after eight minutes of
// work, otherwise after a second.
func TestScreenshots(t *testing.T) {
	folder, length := *screenshots, 8*time.Minute
	if folder == "" {
		folder, length = t.TempDir(), time.Millisecond
	}
	w := story(t, length)
	url := w.serve()
	ctx := browse(t)
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
			until(`document.querySelector('#live .summary').textContent.includes(', the longest since ') && document.querySelectorAll('.chart').length === document.querySelectorAll('.chart canvas').length`),
			until(`document.getAnimations().length === 0`), chromedp.CaptureScreenshot(&picture))
		path := filepath.Join(folder, shot.name+".png")
		w.must(os.WriteFile(path, picture, 0o644))
		if len(picture) < 10_000 || len(picture) > 200_000 {
			t.Errorf("%s has %d bytes, want 10 to 200 kB", path, len(picture))
		}
	}
}

// story has producers and operators work for so long, while a worker runs on a redis-server.
func story(t *testing.T, length time.Duration) *fixture {
	t.Helper()
	w := realFixture(t)
	w.run(handle)
	jobs := 0
	add := func(n int, limit, key string) {
		for range n {
			jobs++
			w.enqueue(fmt.Sprintf("%s-%05d", limit, jobs), limit, key)
		}
	}
	ops := throttle.WithActor(t.Context(), "ops@terminal")
	const steps = 30
	second := time.NewTicker(min(time.Second, length))
	defer second.Stop()
	for step := range steps {
		switch step {
		case 2, 6, 22:
			for i, host := range []string{"news.example", "slow.example", "api.example", "blog.example", "shop.example", "wiki.example", "docs.example"} {
				add(max(20, int(length.Seconds())*4/5)/(i+1), "host", host)
			}
		case 8:
			w.must(w.limiter.Set(ops, throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.Every(3 * time.Second)}))
		case 24:
			add(40, "slots", "")
		case 28:
			w.must(w.limiter.Pause(ops, "mail"))
		}
		for begin := time.Now(); time.Since(begin) < length/steps; <-second.C {
			add(2, "mail", "")
			add(3, "api-daily", "")
			add(4+step/6, "everyone", "")
		}
	}
	return w
}

// handle is the handler of the jobs.
func handle(ctx context.Context, limit, key string) error {
	each := 50 * time.Millisecond
	if limit == "slots" {
		each = 25 * time.Second
	}
	if key == "api.example" && time.Now().Second() < 2 {
		return scheduler.RateLimited(time.Now().Add(3 * time.Minute))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(each):
		return nil
	}
}

// view sets the size of the window and the color scheme.
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

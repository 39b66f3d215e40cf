package page_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

var screenshots = flag.String("screenshots", "", "write pictures of the page into this folder")

// TestScreenshots writes the pictures that the documents show, with make
// screenshots.
func TestScreenshots(t *testing.T) {
	folder := *screenshots
	if folder == "" {
		folder = t.TempDir() // they can be taken, and are not too large
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
		do(t, ctx, shot.name, view(shot.width, shot.height, shot.dark, shot.phone), chromedp.Navigate(url+shot.path),
			chromedp.WaitVisible("#live table"), chromedp.Sleep(2500*time.Millisecond), chromedp.CaptureScreenshot(&picture))
		path := filepath.Join(folder, shot.name+".png")
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
	w.past()
	w.run(700 * time.Millisecond)
	return w.serve()
}

// past writes what a process would have said in the quarter of an hour before.
func (w *world) past() {
	ctx := w.t.Context()
	now := time.Now().Add(-time.Second)
	for at := now.Add(-15 * time.Minute); at.Before(now); at = at.Add(time.Second) {
		age := now.Sub(at).Minutes()
		bend := func(least, most, middle, width float64) int64 {
			return int64(least + (most-least)/(1+math.Exp((age-middle)/width)) + rand.Float64()*2)
		}
		host, mail := bend(0, 4, 11, 1), bend(2, 10, 6, .5)
		s := history.Summary{Process: "before", Limits: map[string]history.Limited{
			"host":     {Allowed: host, Permits: host, Denied: host},
			"everyone": {Allowed: bend(20, 60, 8, 1.5), Permits: bend(20, 60, 8, 1.5)},
			"mail":     {Allowed: mail, Permits: mail, Denied: mail / 3},
		}}
		if age > 4 {
			s.Limits["api-daily"] = history.Limited{Allowed: 3, Permits: 3}
		}
		text, err := json.Marshal(s)
		w.must(err)
		w.must(w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: history.Prefix("crawl") + "history", ID: history.StreamID(at), Values: []any{"s", text}}).Err())
	}
	w.must(w.limiter.Set(throttle.As(ctx, "ops@terminal"), throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 3 * time.Second}}))
	w.must(w.limiter.Set(throttle.As(ctx, "ops@terminal"), throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.Rate{N: 1, Per: 2 * time.Second}}))
	w.must(w.limiter.Pause(throttle.As(ctx, "page"), "mail"))
	w.must(w.limiter.Block(throttle.As(ctx, "upstream"), "host", "api.example", time.Now().Add(3*time.Minute)))
}

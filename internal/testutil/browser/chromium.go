// Package browser opens pages in a Chromium, for tests and measurements.
package browser

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"
)

// Chromium starts a browser with a profile of its own, which ends with the test.
// It reaches nothing but what it is sent to.
func Chromium(t *testing.T) context.Context {
	t.Helper()
	ctx, done, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return ctx
}

// Open is Chromium without a test; the caller must call done.
func Open() (ctx context.Context, done func(), err error) {
	binary := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			binary = path
			break
		}
	}
	if binary == "" {
		return nil, nil, errors.New("Chromium is not installed: run make deps")
	}
	profile, err := os.MkdirTemp("", "headgate-chromium-")
	if err != nil {
		return nil, nil, err
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(binary), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("no-proxy-server", true),
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(allocator)
	return ctx, func() {
		end()
		cancel()
		if browser := chromedp.FromContext(ctx); browser.Allocator != nil {
			browser.Allocator.Wait()
		}
		_ = os.RemoveAll(profile) // what a process of it still writes stays
	}, nil
}

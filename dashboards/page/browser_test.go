package page_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/throttle"
)

// browse opens a Chromium with its own profile, which can reach no other host.
func browse(t *testing.T) context.Context {
	t.Helper()
	binary := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && binary == "" {
			binary = path
		}
	}
	if binary == "" {
		t.Fatal("Chromium is not installed: run make deps")
	}
	profile, err := os.MkdirTemp("", "headgate-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(),
		chromedp.WSURLReadTimeout(time.Until(proctest.End())), chromedp.ExecPath(binary), chromedp.UserDataDir(profile), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("no-proxy-server", true))
	browser, end := chromedp.NewContext(allocator)
	ctx, cancel := context.WithDeadline(browser, proctest.End())
	t.Cleanup(func() {
		cancel()
		end()
		stop()
		if c := chromedp.FromContext(browser); c.Allocator != nil {
			c.Allocator.Wait()
		}
		_ = os.RemoveAll(profile) // fails if a process of it still writes
	})
	if err := chromedp.Run(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	return ctx
}

func do(ctx context.Context, t *testing.T, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		var at, text string
		late, cancel := context.WithDeadline(context.WithoutCancel(ctx), proctest.End().Add(10*time.Second))
		defer cancel()
		_ = chromedp.Run(late, chromedp.Location(&at), chromedp.Evaluate(`document.querySelector('dialog').innerText + '\n' + document.body.innerText`, &text))
		t.Fatalf("%s: %v\nat %s:\n%.2000s", what, err, at, text)
	}
}

// until waits until an expression is true in the page.
func until(expression string) chromedp.Action {
	return chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0))
}

// set sets the value of a field.
func set(selector, value string) chromedp.Action {
	return chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).value = %q", selector, value), nil)
}

// TestOperator does in a browser what an operator on call does, while jobs run.
func TestOperator(t *testing.T) {
	w := realFixture(t)
	w.options.Token = "open sesame"
	for i := range 900 {
		w.enqueue(fmt.Sprintf("page-%03d", i), "everyone", "")
	}
	w.must(w.limiter.Set(t.Context(), throttle.Limit{Name: "everyone", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(4), Capacity: 1}))
	w.must(w.limiter.Pause(t.Context(), "everyone"))
	w.run(func(context.Context, string, string) error { return nil })
	w.allWait(900)
	url := w.serve()
	ctx := browse(t)
	do(ctx, t, "note what the policy refuses", chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdp.AddScriptToEvaluateOnNewDocument(`addEventListener('securitypolicyviolation', e => {
			sessionStorage.refused = JSON.stringify([...JSON.parse(sessionStorage.refused || '[]'), e.violatedDirective + ' ' + e.blockedURI])
		})`).Do(ctx)
		return err
	}))

	var code int64
	do(ctx, t, "come without a token", chromedp.Navigate(url), chromedp.WaitVisible(`.ask`),
		chromedp.Evaluate(`performance.getEntriesByType('navigation')[0].responseStatus`, &code))
	if code != 401 {
		t.Errorf("without a token the page answers %d, want 401", code)
	}
	var at string
	do(ctx, t, "come with the token", chromedp.Navigate(url+"/?token=open+sesame"), chromedp.WaitVisible(`#limit-everyone`), chromedp.Location(&at))
	if at != url+"/" {
		t.Errorf("the browser is at %s, want the address without the token", at)
	}

	// The page updates itself: window.before would be gone after a reload. Jobs get fewer, but do not end
	// before a slow browser has looked one up.
	do(ctx, t, "look at the limit", until(waitingNow+` > 0`), chromedp.Evaluate(`window.before = `+waitingNow+`; 0`, nil))
	w.must(w.limiter.Resume(t.Context(), "everyone"))
	w.fewerWait(900)
	w.must(w.limiter.Set(t.Context(), throttle.Limit{Name: "everyone", Kind: throttle.TokenBucket, Rate: throttle.PerMinute(6), Capacity: 1}))
	do(ctx, t, "see fewer jobs wait", until(waitingNow+` < before`))

	var text string
	do(ctx, t, "look up a waiting job", chromedp.KeyEvent("/"), until(`document.activeElement.id === 'find'`),
		set(`#find`, ""), chromedp.SendKeys(`#find`, "page-899\r"), chromedp.WaitVisible(`.job dl`),
		chromedp.Text(`.job`, &text))
	for _, want := range []string{"Runs", "everyone", "in its lane", "•••"} {
		if !strings.Contains(text, want) {
			t.Errorf("the job's page does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "sesame") {
		t.Errorf("the job's page shows a secret:\n%s", text)
	}

	do(ctx, t, "raise the limit", chromedp.Navigate(url+"/?open=everyone"), chromedp.WaitVisible(`.chart canvas`),
		chromedp.Click(`#limit-everyone .acts a[href*="action=change"]`), chromedp.WaitVisible(`dialog input[name=rate]`))
	do(ctx, t, "raise the limit", set(`dialog input[name=rate]`, "nonsense"), chromedp.Click(`dialog button`), chromedp.WaitVisible(`dialog .wrong`),
		set(`dialog input[name=rate]`, "2000/s"), set(`dialog input[name=capacity]`, "50"), chromedp.Click(`dialog button`),
		chromedp.WaitNotPresent(`dialog[open]`))
	do(ctx, t, "see the lane empty", until(`document.querySelector('.summary').textContent.includes('Nothing waits')`))

	do(ctx, t, "pause", chromedp.Click(`#limit-everyone .acts a[href*="action=pause"]`), chromedp.WaitVisible(`dialog button`), chromedp.Click(`dialog button`),
		until(`document.querySelector('#limit-everyone .chip').textContent === 'paused'`),
		until(`document.querySelector('.events').textContent.includes('everyone paused by token')`))
	limits, err := w.limiter.Limits(t.Context())
	w.must(err)
	for _, l := range limits {
		if l.Paused != (l.Name == "everyone") {
			t.Errorf("limit %s is paused: %v", l.Name, l.Paused)
		}
	}

	for _, name := range []string{"waiting", "jobs", "changes"} {
		do(ctx, t, name, chromedp.Navigate(url+"/"+name), chromedp.WaitVisible(`main`))
	}
	var refused []string
	do(ctx, t, "policy", chromedp.Evaluate(`JSON.parse(sessionStorage.refused || '[]')`, &refused))
	if len(refused) > 0 {
		t.Errorf("the page breaks its own policy: %q", refused)
	}
}

const waitingNow = `Number(document.querySelector('#limit-everyone td:nth-of-type(3)').textContent.replace(',', ''))`

// TestAccessibility runs axe on every page and dialog, on a light desktop and on a dark phone.
func TestAccessibility(t *testing.T) {
	w := miniFixture(t)
	w.options.Token = "open sesame"
	for i := range 16 {
		w.wait(fmt.Sprint("job-", i), throttle.Need{Limit: "host", Key: fmt.Sprint("host-", i%8, ".example")})
	}
	w.enqueue("lost", "everyone", "")
	w.run(func(context.Context, string, string) error { return asynq.SkipRetry })
	w.must(w.limiter.Pause(t.Context(), "mail"))
	w.must(w.limiter.Block(t.Context(), "host", "host-3.example", time.Now().Add(time.Hour)))
	url := w.serve()
	ctx := browse(t)
	do(ctx, t, "archive a job", chromedp.Navigate(url+"/?token=open+sesame"), chromedp.WaitVisible(`#limit-host`), chromedp.Navigate(url+"/jobs?state=archived"), until(`document.querySelector('.reason')`))
	pages := []string{
		"do?back=&action=change&limit=host", "do?back=&action=block&limit=host", "jobs", "jobs?state=archived&queue=default", "jobs?state=nope", "", "?open=host", "waiting", "job?queue=default&id=lost", "job?queue=default&id=job-1",
		"changes", "find?q=host", "no-such-page",
	}
	for name, looks := range map[string]chromedp.Action{"light": view(1280, 900, false), "dark, on a phone": view(390, 844, true)} {
		do(ctx, t, name, looks)
		for _, page := range pages {
			do(ctx, t, name+" "+page, chromedp.Navigate(url+"/"+page), chromedp.WaitVisible(`main`))
			accessible(ctx, t, name+": "+page)
			fits(ctx, t, name+": "+page)
		}
		do(ctx, t, name+" dialog", chromedp.Navigate(url+"/?open=host"), chromedp.WaitVisible(`.detail`),
			chromedp.Evaluate(`document.querySelector('.detail a[href*="action=change"]').click()`, nil), chromedp.WaitVisible(`dialog input[name=rate]`),
			set(`dialog input[name=rate]`, "nonsense"), chromedp.Click(`dialog button`), chromedp.WaitVisible(`dialog .wrong`))
		accessible(ctx, t, name+": dialog")
	}
}

// fits checks that the page and its cards and tables do not scroll sideways.
func fits(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	var wide []string
	do(ctx, t, what, chromedp.Evaluate(`[document.documentElement, ...document.querySelectorAll('.card, .scroll, header, main')]
		.filter(e => e.scrollWidth > e.clientWidth).map(e => (e.ariaLabel || e.className || e.tagName) + ' is ' + e.scrollWidth + ' wide, and has ' + e.clientWidth)`, &wide))
	for _, w := range wide {
		t.Errorf("%s: %s", what, w)
	}
}

// axe is a checker for accessibility.
var axe = sync.OnceValues(func() (string, error) {
	text, err := os.ReadFile("testdata/axe/axe.min.js")
	return string(text), err
})

// accessible checks that axe finds nothing serious.
func accessible(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	axe, err := axe()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	do(ctx, t, what, chromedp.Evaluate(axe+";0", nil), chromedp.Evaluate(
		`axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.filter(v => ['serious', 'critical'].includes(v.impact))
			.map(v => v.id + ': ' + v.help + ' ' + v.nodes.map(n => n.target + ' ' + n.html.slice(0, 150)).join(' | ')))`,
		&found, chromedp.EvalAsValue, awaited))
	for _, f := range found {
		t.Errorf("%s: %s", what, f)
	}
}

func awaited(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

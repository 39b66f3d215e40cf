package page_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/headgate/headgate/throttle"
)

// TestFits: with the longest names and numbers, and with times years ahead, no page, table or card is
// wider than its place, on a desktop and on a phone. With -screenshots the pictures are kept.
func TestFits(t *testing.T) {
	w := miniFixture(t)
	ctx := t.Context()
	long := strings.Repeat("account-of-a-customer.", 4) + "WWWWWWWWWWWW"
	key := "a-host-with-a-long-name." + strings.Repeat("M", 60) + ".example"
	limits := []throttle.Limit{
		{Name: long, Kind: throttle.FixedWindow, Rate: throttle.Rate{N: 10_000_000, Per: 30 * throttle.Day}, Zone: "America/Argentina/ComodRivadavia"},
		{Name: "monthly", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 1, Per: 30 * throttle.Day}, Capacity: 1},
		{Name: "keyed", Kind: throttle.TokenBucket, Rate: throttle.Rate{N: 1_000_000, Per: 31 * throttle.Day}, Capacity: 1_000_000},
	}
	w.must(w.limiter.Define(ctx, limits...))
	w.options.KeyOf = func(limit string) (string, bool) {
		return map[string]string{"keyed": "lower(payload.customer.account.identifier)"}[limit], true
	}
	_, err := w.limiter.AllowN(ctx, long, "", 9_999_999)
	w.must(err)
	d, err := w.limiter.AllowN(ctx, "keyed", key, 1_000_000)
	w.must(err)
	w.must(w.limiter.Settle(ctx, d, "keyed", key, 9_999_999))
	for i := range 90 {
		id := fmt.Sprintf("%02d-%s", i, strings.Repeat("0123456789abcdef", 4))
		w.enqueue(id, "monthly", "")
		w.wait(id, throttle.Need{Limit: "monthly"}, throttle.Need{Limit: long, Cost: 100_000})
		w.wait("k"+id, throttle.Need{Limit: "keyed", Key: key, Cost: 999_999})
		w.wait("s"+id, throttle.Need{Limit: "slots"})
	}
	w.must(w.limiter.Block(ctx, "keyed", "other."+key, time.Now().Add(throttle.Day)))
	w.must(w.limiter.SetKey(ctx, "keyed", key, throttle.Override{Rate: throttle.Rate{N: 999_999, Per: 31 * throttle.Day}}))
	url, browser, folder := w.serve(), browse(t), cmp.Or(*screenshots, t.TempDir())
	for size, looks := range map[string]chromedp.Action{"1280": view(1280, 900, false), "390": view(390, 844, false)} {
		do(browser, t, size, looks)
		for name, path := range map[string]string{
			"limits": "", "open": "?open=" + long, "key": "?open=keyed", "waiting": "waiting", "jobs": "jobs", "changes": "changes",
			"job": "job?queue=default&id=89-" + strings.Repeat("0123456789abcdef", 4),
		} {
			var picture []byte
			do(browser, t, name, chromedp.Navigate(url+"/"+path), chromedp.WaitVisible(`main`), chromedp.FullScreenshot(&picture, 100))
			w.must(os.WriteFile(filepath.Join(folder, "fits-"+name+"-"+size+".png"), picture, 0o600))
			fits(browser, t, name+" at "+size)
		}
		var text string
		do(browser, t, "limits", chromedp.Navigate(url+"/"), chromedp.WaitVisible(`#limit-monthly`), chromedp.Text(`#limit-monthly`, &text))
		var owed string
		do(browser, t, "key", chromedp.Navigate(url+"/?open=keyed"), chromedp.WaitVisible(`[aria-label=Keys]`), chromedp.Text(`[aria-label=Keys]`, &owed))
		if !strings.Contains(owed, " owed") {
			t.Errorf("the key's row does not say what is owed:\n%s", owed)
		}
		if size == "1280" && !regexp.MustCompile(`20\d\d-\d\d-\d\d \d\d:\d\d`).MatchString(text) {
			t.Errorf("the limit's row has no time in another year:\n%s", text)
		}
	}
}

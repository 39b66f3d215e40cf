package links

import (
	"testing"
	"time"
)

func TestTrap(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]bool{
		"https://example.com/":                                 false,
		"https://example.com/a/b/c":                            false,
		"https://example.com/docs/docs/index.html":             false,
		"https://example.com/docs/docs/docs/index.html":        true,
		"https://example.com/x/shop/list/shop/list/shop/list/": true,
		"https://example.com/shop/list/shop/other/shop/list":   false,
		"https://example.com/1/1/1/1":                          false,
		"https://example.com/a/a/a/b":                          false,
		"https://example.com/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/30":    false,
		"https://example.com/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17/18/19/20/21/22/23/24/25/26/27/28/29/30/31": true,
		"https://example.com/blog/2009/04/a-post":        false,
		"https://example.com/calendar/2028/12":           false,
		"https://example.com/calendar/2029/01":           true,
		"https://example.com/calendar/1969-12":           true,
		"https://example.com/calendar?month=2031-07":     true,
		"https://example.com/calendar?month=2027-07":     false,
		"https://example.com/parts/29317-07-11":          false,
		"https://example.com/article/2099-things-to-see": false,
	} {
		if got := Trap(text, now); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

package tasks

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, time.March, 1, 12, 0, 0, int(250*time.Millisecond), time.UTC)
	const (
		noon   = "Sun, 01 Mar 2026 12:00:00 GMT"
		later  = "Sun, 01 Mar 2026 12:00:07 GMT"
		before = "Sun, 01 Mar 2026 11:00:00 GMT"
		never  = "Fri, 31 Dec 9999 23:59:59 GMT"
	)
	tests := []struct {
		name, value, date string
		want              time.Duration
	}{
		{"none", "", "", 0},
		{"seconds", "120", "", 2 * time.Minute},
		{"seconds, spaces", " 5 ", "", 5 * time.Second},
		{"zero", "0", "", 0},
		{"negative", "-5", "", 0},
		{"fraction", "1.5", "", 0},
		{"words", "soon", "", 0},
		{"above a year", "99999999", "", maxRetryAfter},
		{"above 64 bits", "99999999999999999999999", "", maxRetryAfter},
		{"date, rounded up", later, "", 7 * time.Second},
		{"date by the server's clock", later, before, time.Hour + 7*time.Second},
		{"date, server's date unreadable", later, "today", 7 * time.Second},
		{"date that is now", noon, noon, 0},
		{"date that is over", before, "", 0},
		{"date far away", never, "", maxRetryAfter},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Retry-After", tt.value)
			h.Set("Date", tt.date)
			if got := retryAfter(h, now); got != tt.want {
				t.Errorf("Retry-After %q, Date %q: got %s, want %s", tt.value, tt.date, got, tt.want)
			}
		})
	}
}

func TestStatusErrorText(t *testing.T) {
	tests := []struct {
		err  StatusError
		want string
	}{
		{StatusError{Status: 404, URL: "http://h/"}, "http://h/ answered 404 Not Found, want any 2xx"},
		{StatusError{Status: 299, URL: "http://h/", Expect: []int{200, 404}}, "http://h/ answered 299, want 200 or 404"},
		{
			StatusError{Status: 429, URL: "http://h/", RetryAfter: 3 * time.Second},
			"http://h/ answered 429 Too Many Requests, want any 2xx, and asked to wait 3s",
		},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

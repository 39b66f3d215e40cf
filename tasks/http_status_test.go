package tasks

import (
	"testing"
	"time"
)

func TestStatusErrorText(t *testing.T) {
	tests := []struct {
		err  StatusError
		want string
	}{
		{StatusError{Status: 404, URL: "http://h/"}, "http://h/ answered 404 Not Found, want any 2xx"},
		{StatusError{Status: 299, URL: "http://h/", Expect: []int{200, 404}}, "http://h/ answered 299, want 200 or 404"},
		{
			StatusError{Status: 429, URL: "http://h/", RetryAfter: 3 * time.Second},
			"http://h/ answered 429 Too Many Requests, want any 2xx, and asked to wait 3 s",
		},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

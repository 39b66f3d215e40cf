package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// The demo relies on the API, so the API must count any second, not only whole ones.
func TestLimitedAPI_AnySecond(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		calls       []time.Duration // since the start
		want, state string
	}{
		{[]time.Duration{0, 0, 0}, "[200 200 200]", "served 3, rejected 0; busiest second 3 of 3"},
		{[]time.Duration{0, 0, 0, 999 * ms}, "[200 200 200 429]", "served 3, rejected 1; busiest second 4 of 3"},
		{[]time.Duration{0, 0, 0, 1000 * ms}, "[200 200 200 200]", "served 4, rejected 0; busiest second 3 of 3"},
		{[]time.Duration{900 * ms, 950 * ms, 1800 * ms, 1850 * ms}, "[200 200 200 429]", "served 3, rejected 1; busiest second 4 of 3"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, start := &limitedAPI{rate: 3}, time.Now()
			var got []int
			for _, at := range tt.calls {
				time.Sleep(at - time.Since(start)) // virtual
				w := httptest.NewRecorder()
				a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/orders", nil))
				a.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/healthz", nil)) // does not count
				if got = append(got, w.Code); (w.Header().Get("Retry-After") == "1") != (w.Code == 429) {
					t.Errorf("%d has Retry-After %q", w.Code, w.Header().Get("Retry-After"))
				}
			}
			if fmt.Sprint(got) != tt.want || a.state() != tt.state {
				t.Errorf("%v are answered %v, %s; want %s, %s", tt.calls, got, a.state(), tt.want, tt.state)
			}
		})
	}
}

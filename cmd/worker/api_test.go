package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The demo relies on the API, so the API must count any second, not only whole ones.
func TestLimitedAPI_AnySecond(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		calls   []time.Duration // since the start
		want    string
		busiest int
	}{
		{[]time.Duration{0, 0, 0}, "[200 200 200]", 3},
		{[]time.Duration{0, 0, 0, 999 * ms}, "[200 200 200 429]", 4},
		{[]time.Duration{0, 0, 0, 1000 * ms}, "[200 200 200 200]", 3},
		{[]time.Duration{900 * ms, 950 * ms, 1800 * ms, 1850 * ms}, "[200 200 200 429]", 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, start := &limitedAPI{rate: 3}, time.Now()
			var got []int
			for _, at := range tt.calls {
				time.Sleep(at - time.Since(start)) // virtual
				got = append(got, callAPI(t, a, "/orders"))
			}
			if fmt.Sprint(got) != tt.want || a.busiest != tt.busiest {
				t.Errorf("%v are answered %v, the busiest second has %d; want %s, %d", tt.calls, got, a.busiest, tt.want, tt.busiest)
			}
		})
	}
}

func callAPI(t *testing.T, a *limitedAPI, path string) int {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	if again := w.Header().Get("Retry-After"); (again == "1") != (w.Code == 429) {
		t.Errorf("%d has Retry-After %q", w.Code, again)
	}
	return w.Code
}

func TestLimitedAPI_Report(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &limitedAPI{rate: 2}
		var out strings.Builder
		a.report(&out) // nothing yet
		for range 3 {
			callAPI(t, a, "/orders")
		}
		callAPI(t, a, "/healthz")
		a.report(&out)
		a.report(&out)
		time.Sleep(time.Second)
		callAPI(t, a, "/orders")
		a.report(&out)
		want := "00:00:00 served 2, rejected 1; busiest second so far 3 of 2\n00:00:01 served 1, rejected 0; busiest second so far 3 of 2\n"
		if out.String() != want {
			t.Errorf("it prints\n%swant\n%s", out.String(), want)
		}
	})
}

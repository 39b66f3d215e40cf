package demo

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPITellsWhatItSaw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewAPI(2)
		var out strings.Builder
		u.Tell(&out) // nothing yet
		for i, want := range []int{200, 200, 429} {
			answer := httptest.NewRecorder()
			u.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/orders", nil))
			if again := answer.Header().Get("Retry-After"); answer.Code != want || (again == "1") != (want == 429) {
				t.Errorf("call %d: %d, Retry-After %q; want %d", i, answer.Code, again, want)
			}
		}
		u.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/healthz", nil))
		u.Tell(&out)
		u.Tell(&out)
		time.Sleep(time.Second)
		u.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders", nil))
		u.Tell(&out)
		want := "00:00:00 served 2, refused 1; busiest second so far 3 of 2\n00:00:01 served 1, refused 0; busiest second so far 3 of 2\n"
		if out.String() != want {
			t.Errorf("it told\n%swant\n%s", out.String(), want)
		}
	})
}

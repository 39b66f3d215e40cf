package demo

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The API is the witness of the demo, so it must see what it should refuse.
func TestAPIRefusesMoreThanItsLimitInAnySecond(t *testing.T) {
	tests := []struct {
		name    string
		calls   []time.Duration // since the start, in turn for accounts a and b
		want    []int
		busiest int
	}{
		{"as many as allowed at once", []time.Duration{0, 0, 0}, []int{200, 200, 200}, 3},
		{"one too many", []time.Duration{0, 0, 0, 999 * time.Millisecond}, []int{200, 200, 200, 429}, 4},
		{"a second later", []time.Duration{0, 0, 0, time.Second}, []int{200, 200, 200, 200}, 3},
		{
			"across the border of a clock's second",
			[]time.Duration{900 * time.Millisecond, 950 * time.Millisecond, 1800 * time.Millisecond, 1850 * time.Millisecond},
			[]int{200, 200, 200, 429},
			4,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPI(4, 3, 2)
				start := time.Now()
				var got []int
				for i, at := range tt.calls {
					time.Sleep(at - time.Since(start)) // virtual
					got = append(got, call(a, i, string(rune('a'+i%2))))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if a.all.busiest != tt.busiest {
					t.Errorf("busiest second has %d calls, want %d", a.all.busiest, tt.busiest)
				}
			})
		})
	}
}

func TestAPIRefusesMoreThanAnAccountsLimit(t *testing.T) {
	a := newAPI(3, 3, 2)
	got := []int{call(a, 0, "a"), call(a, 1, "a"), call(a, 2, "a")}
	if diff := cmp.Diff([]int{200, 200, 429}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// call makes one call of a job and returns the status.
func call(a *API, job int, account string) int {
	r := httptest.NewRequest(http.MethodGet, "/?job="+string(rune('0'+job)), nil)
	r.Header.Set(accountHeader, account)
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Code
}

func TestResultIsGoodOnlyIfNothingWentWrong(t *testing.T) {
	good := Result{Jobs: 5, Done: 5, BusiestSecond: 3, AllowedPerSecond: 3, busiestAccount: 2, allowedPerAccount: 2}
	if !good.Good() {
		t.Error("a good result is not good")
	}
	for name, spoil := range map[string]func(*Result){
		"a job is missing":    func(r *Result) { r.Done-- },
		"a job ran twice":     func(r *Result) { r.RanTwice++ },
		"an answer 429":       func(r *Result) { r.HTTP429++ },
		"too busy a second":   func(r *Result) { r.BusiestSecond++ },
		"too busy an account": func(r *Result) { r.busiestAccount++ },
	} {
		bad := good
		spoil(&bad)
		if bad.Good() {
			t.Errorf("%s, and the result is good", name)
		}
	}
}

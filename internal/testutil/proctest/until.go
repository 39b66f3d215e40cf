package proctest

import (
	"flag"
	"time"
)

// TB is a *testing.T, *testing.B, *rapid.T or *testscript.TestScript.
type TB interface {
	Fatalf(format string, args ...any)
}

// Until repeats ok until ok is done. No time of its own ends the wait. Half a minute before the test
// binary's -timeout, Until ends the test, and says what it waited for and what ok saw last. Bubbles
// of testing/synctest do not need it.
func Until(t TB, what string, ok func() (done bool, seen any)) {
	if t, isTest := t.(interface{ Helper() }); isTest {
		t.Helper()
	}
	var last any
	if !Wait(func() bool {
		done, seen := ok()
		last = seen
		return done
	}) {
		t.Fatalf("no %s before the end of -timeout; last seen:\n%v", what, last)
	}
}

// Wait is [Until] for callers without a test. It returns false at the end of the time.
func Wait(ok func() bool) bool {
	for pause := time.Millisecond; !ok(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(End()) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// began is about when -timeout began. The package testing tells its end only to a *testing.T.
var began = time.Now()

// End is half a minute before the end of the test binary's -timeout. It is the deadline of calls that
// have to wait themselves. Without -timeout it is years away.
func End() time.Time {
	limit := time.Duration(0)
	if f := flag.Lookup("test.timeout"); f != nil {
		limit = f.Value.(flag.Getter).Get().(time.Duration)
	}
	if limit == 0 {
		return began.AddDate(10, 0, 0)
	}
	return began.Add(limit - min(30*time.Second, limit/2))
}

package waitdb_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/throttle"
)

var background = context.Background()

const (
	allowed = throttle.Allowed
	denied  = throttle.Denied
	never   = throttle.Impossible
	noLimit = throttle.NoLimit
)

func define(t *testing.T, l interface {
	Define(context.Context, ...throttle.Limit) error
}, limits ...throttle.Limit) {
	t.Helper()
	must(t, l.Define(t.Context(), limits...))
}

// ask takes n permits of a limit for the key "k", beside the lanes.
func ask(t *testing.T, l interface {
	AllowN(ctx context.Context, limit, key string, n int) (throttle.Decision, error)
}, limit string, n int) throttle.Decision {
	t.Helper()
	d, err := l.AllowN(t.Context(), limit, "k", n)
	must(t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(throttle.Decision{}, throttle.KeyState{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	must(t, err)
	return at
}

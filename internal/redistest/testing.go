package redistest

import (
	"io"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TB is what the helpers use of a *testing.T, *testing.B or *rapid.T. What they
// start ends when that test does.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Real gives a client of an empty redis-server that only this test uses.
func Real(t TB) redis.UniversalClient {
	t.Helper()
	rdb := Run(t).Client()
	closeAfter(t, rdb)
	return rdb
}

// Run is [Start] for a test.
func Run(t TB, args ...string) *Server {
	t.Helper()
	s, err := Start(args...)
	return started(t, s, err)
}

// RunTLS is [StartTLS] for a test.
func RunTLS(t TB, args ...string) *Server {
	t.Helper()
	s, err := StartTLS(args...)
	return started(t, s, err)
}

// RunSentinel is [StartSentinel] for a test.
func RunSentinel(t TB) *Sentinel {
	t.Helper()
	s, err := StartSentinel()
	return started(t, s, err)
}

// RunCluster is [StartCluster] for a test.
func RunCluster(t TB) *Cluster {
	t.Helper()
	c, err := StartCluster()
	return started(t, c, err)
}

// Both runs f on miniredis and on a real redis-server, as subtests "miniredis"
// and "redis".
func Both(t *testing.T, f func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		_, rdb := Mini(t)
		f(t, rdb)
	})
	t.Run("redis", func(t *testing.T) { f(t, Real(t)) })
}

// started fails the test unless what it was to start has started.
func started[S io.Closer](t TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
	closeAfter(t, s)
	return s
}

func closeAfter(t TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Fatalf("close %T: %v", c, err)
		}
	})
}

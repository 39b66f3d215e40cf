package redistest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Mini returns a new miniredis and a client. They talk in memory, so they work in a testing/synctest
// bubble, whose clock TIME and the expiry of keys follow. Call it inside the bubble.
func Mini(t TB) (*miniredis.Miniredis, redis.UniversalClient) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	first, err := m.Dial() // starts the server
	if err != nil {
		t.Fatalf("miniredis: %v", err)
	}
	closeAfter(t, first)
	Before(m, nil)
	return m, MiniClient(t, m)
}

// MiniClient returns one more client of a miniredis.
func MiniClient(t TB, m *miniredis.Miniredis) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(Patient(&redis.Options{
		// Not a name, because looking up names leaves goroutines outside the bubble.
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			server, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return newReadAhead(server), nil
		},
		// So large that no caller waits for a connection: go-redis shares timers of waiting callers
		// across bubbles, which panics.
		PoolSize:                 1000,
		MaintNotificationsConfig: noNotifications(),
	}))
	closeAfter(t, rdb)
	return rdb
}

// Both runs f on miniredis and on a redis-server, as subtests "miniredis" and "redis".
func Both(t *testing.T, f func(t *testing.T, rdb redis.UniversalClient)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) {
		_, rdb := Mini(t)
		f(t, rdb)
	})
	t.Run("redis", func(t *testing.T) { f(t, Real(t)) })
}

// readAhead reads replies at once, whether or not the client does. miniredis writes replies under a
// lock, and a goroutine that waits for a lock stops the bubble's clock: a client that sleeps before
// it reads would sleep for ever.
type readAhead struct {
	net.Conn          // the client reads from it
	server   net.Conn // the client writes to it
}

func newReadAhead(server net.Conn) net.Conn {
	near, far := net.Pipe()
	var mu sync.Mutex
	came := sync.NewCond(&mu)
	var unread []byte // without a bound, because a subscriber may read nothing while others publish
	ended := false
	go func() {
		buffer := make([]byte, 4096)
		for err := error(nil); err == nil; {
			var n int
			n, err = server.Read(buffer)
			mu.Lock()
			unread = append(unread, buffer[:n]...)
			ended = err != nil
			mu.Unlock()
			came.Signal()
		}
	}()
	go func() {
		defer far.Close()
		for {
			mu.Lock()
			for len(unread) == 0 && !ended {
				came.Wait()
			}
			some := unread
			unread = nil
			mu.Unlock()
			if len(some) == 0 {
				return
			}
			if _, err := far.Write(some); err != nil {
				_ = server.Close()
			}
		}
	}()
	return readAhead{near, server}
}

func (c readAhead) Write(b []byte) (int, error) { return c.server.Write(b) }

func (c readAhead) Close() error {
	_ = c.Conn.Close()
	return c.server.Close()
}

package redistest

import (
	"context"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Mini gives an empty miniredis, and a client of it, that only this test uses.
// Both talk in memory and not over a port, so they also work in a
// testing/synctest bubble, where TIME and the keys' expiry follow the bubble's
// clock. Call it inside of the bubble.
func Mini(t TB) (*miniredis.Miniredis, redis.UniversalClient) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	first, err := m.Dial() // only then is there a server to ask
	if err != nil {
		t.Fatalf("miniredis: %v", err)
	}
	closeAfter(t, first)
	Before(m, nil)
	return m, MiniClient(t, m)
}

// MiniClient gives one more client of a miniredis, like the one from [Mini].
func MiniClient(t TB, m *miniredis.Miniredis) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		// Nothing listens there. It is a number because go-redis looks host
		// names up, which leaves goroutines outside of the bubble.
		Addr: "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			server, err := m.Dial()
			if err != nil {
				return nil, err
			}
			return newReadAhead(server), nil
		},
		// Nobody waits for a connection: go-redis keeps the timers of those who do for
		// the next one, who may be outside of the bubble, and dies of it.
		PoolSize:                 1000,
		MaintNotificationsConfig: noNotifications(),
	})
	closeAfter(t, rdb)
	return rdb
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

// readAhead is a connection whose answers are taken at once, whether or not the client reads.
// miniredis writes an answer under a lock for which those wait who publish, and who waits for
// a lock holds up a bubble's time: a client that pauses before it reads would never go on.
type readAhead struct {
	net.Conn // from which the client reads
	server   net.Conn
}

func newReadAhead(server net.Conn) net.Conn {
	near, far := net.Pipe()
	answers := make(chan []byte, 1<<12)
	go func() {
		defer close(answers)
		for {
			buffer := make([]byte, 4096)
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			answers <- buffer[:n]
		}
	}()
	go func() {
		defer far.Close()
		for a := range answers {
			if _, err := far.Write(a); err != nil {
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

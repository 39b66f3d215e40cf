package redistest

import (
	"context"
	"net"

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

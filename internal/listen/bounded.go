package listen

import (
	"net"
	"slices"
	"sync"
)

// MaxConns bounds the connections of a listener. All who may look at the page have room,
// and where a process has a thousand descriptors the jobs have some.
const MaxConns = 600

// bounded is a listener with a bound on its connections: one more ends the oldest. So
// clients that ask nothing, or read nothing, hold no more than that, and who comes is
// answered, such as a health check. Those who look at the page come again by themselves.
type bounded struct {
	net.Listener
	mu   sync.Mutex
	open []*boundedConn // the oldest in front
}

type boundedConn struct {
	net.Conn
	of *bounded
}

// Accept implements net.Listener.
func (l *bounded) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= MaxConns {
		l.open[0].drop()
		l.open = slices.Delete(l.open, 0, 1)
	}
	c := &boundedConn{conn, l}
	l.open = append(l.open, c)
	return c, nil
}

// drop ends a connection for its client, with what that has yet to read, which the system
// would keep for minutes. Whoever serves it meets an error, and closes it.
func (c *boundedConn) drop() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.open, c); i >= 0 { // -1 is of one that was dropped
		c.of.open = slices.Delete(c.of.open, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

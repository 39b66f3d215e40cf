package redistest

import "net"

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

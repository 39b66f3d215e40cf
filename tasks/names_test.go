package tasks

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers every question for an IPv4 address with the same one.
type nameServer struct {
	conn net.PacketConn
	mu   sync.Mutex
	to   netip.Addr
}

func newNameServer(t *testing.T, address string) *nameServer {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{conn: conn, to: netip.MustParseAddr(address)}
	var done sync.WaitGroup
	done.Go(s.serve)
	t.Cleanup(func() { _ = conn.Close(); done.Wait() })
	return s
}

// lead changes the address that names lead to.
func (s *nameServer) lead(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to = netip.MustParseAddr(address)
}

// resolver asks this server alone.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", s.conn.LocalAddr().String())
	}}
}

func (s *nameServer) serve() {
	buf := make([]byte, 512)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
		if q.Type == dnsmessage.TypeA {
			s.mu.Lock()
			reply.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: s.to.As4()},
			}}
			s.mu.Unlock()
		}
		if packed, err := reply.Pack(); err == nil {
			_, _ = s.conn.WriteTo(packed, from)
		}
	}
}

// port is that of a URL.
func port(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u.Port()
}

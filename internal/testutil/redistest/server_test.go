package redistest

import (
	"net"
	"testing"
)

func TestServer_Stopped_KeepsPort(t *testing.T) {
	s := Run(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if socket, err := net.ListenPacket("udp", s.Addr()); err == nil {
		socket.Close()
		t.Error("the port is not reserved: the server of another test can take it")
	}
	if err := s.Restart(); err != nil {
		t.Error(err)
	}
}

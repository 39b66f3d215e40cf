package worker

import (
	"bytes"
	"log/slog"
	"testing"
)

// TestErrorLog_Handshakes: what any client can have net/http say is not logged, and what
// only a handler can is.
func TestErrorLog_Handshakes(t *testing.T) {
	var said bytes.Buffer
	log := errorLog(slog.New(slog.NewTextHandler(&said, nil)))
	log.Print("http: TLS handshake error from 192.0.2.7:1: EOF")
	if said.Len() > 0 {
		t.Errorf("it logs %s", &said)
	}
	log.Print("http: panic serving 192.0.2.7:1: of a handler\nwith its stack")
	if want := `level=WARN msg="http: panic serving 192.0.2.7:1: of a handler\nwith its stack"` + "\n"; !bytes.HasSuffix(said.Bytes(), []byte(want)) {
		t.Errorf("it logs %s, want %s", &said, want)
	}
}

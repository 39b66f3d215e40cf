package config

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestConnectWaits: Redis is waited for as long as that may help.
func TestConnectWaits(t *testing.T) {
	m := miniredis.RunT(t)
	for answer, waits := range map[string]bool{
		"ERR max number of clients reached": true, "LOADING Redis is loading": true,
		"WRONGPASS invalid": false, "NOPERM no": false, "ERR what": false,
	} {
		asked := 0
		m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd == "PING" {
				asked++
			}
			if cmd != "PING" || asked > 3 {
				return false
			}
			c.WriteError(answer)
			return true
		})
		_, end, err := parseRedis(t, "redis://"+m.Addr()).Connect(t.Context())
		if waits != (err == nil) || !waits && (asked != 1 || !strings.Contains(err.Error(), answer)) {
			t.Errorf("%s: it is asked %d times: %v", answer, asked, err)
		}
		if err == nil {
			_ = end()
		}
	}
}

// TestConnect_UnknownCertificate: the error is about the certificate, and not a timeout.
func TestConnect_UnknownCertificate(t *testing.T) {
	defer func(d time.Duration) { reachTimeout = d }(reachTimeout)
	reachTimeout = time.Minute // however busy this machine is
	s := redistest.RunTLS(t)
	for _, kind := range []string{"rediss", "rediss-cluster", "rediss-sentinel"} {
		_, _, err := parseRedis(t, kind+"://"+s.Addr()+"/0").Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestConnect_ClusterWithDeadNode: of the nodes in a URL one that answers is enough, and where
// none does the reason is told.
func TestConnect_ClusterWithDeadNode(t *testing.T) {
	c := redistest.RunCluster(t)
	for range 4 { // they are asked in any order
		_, end, err := parseRedis(t, "redis-cluster://127.0.0.1:1,"+c.Options().Addrs[0]).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = end()
	}
	if _, _, err := parseRedis(t, "redis-cluster://127.0.0.1:1,127.0.0.1:2").Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v", err)
	}
}

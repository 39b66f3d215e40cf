package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestRun_PortInUse(t *testing.T) {
	rdb := redistest.Run(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	proctest.Replace(t, config, limited)
	for listen, want := range map[string]struct {
		code int
		text string
	}{
		taken.Addr().String(): {1, "worker: --listen " + taken.Addr().String() + ": the port is in use: want a free port, or :0 for any\n"},
		"9090":                {2, "worker: --listen \"9090\": want HOST:PORT or :PORT, such as :9090\n"},
		":70000":              {2, "worker: --listen \":70000\": want HOST:PORT or :PORT, such as :9090\n"},
	} {
		out := command.Run(t.Context(), "run", "--redis", rdb.URL(), "--config", config, "--listen", listen)
		if out.Code != want.code || out.Err != want.text {
			t.Errorf("--listen %s: exit code %d and %q, want %d and %q", listen, out.Code, out.Err, want.code, want.text)
		}
	}
}

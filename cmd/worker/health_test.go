package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/internal/cli"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// runWorker runs "worker run" with a config and a free port until the test ends,
// and returns where it listens and the path of its config.
func runWorker(t *testing.T, rdb *redistest.Server, config string) (url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "headgate.yaml")
	proctest.Replace(t, path, config)
	log := new(proctest.Log)
	proctest.Start(t, log, func(ctx context.Context) error {
		if code := execute(ctx, []string{"run", "--redis", rdb.URL(), "--config", path, "--listen", ":0"}, cli.IO{Out: io.Discard, Err: log}); code != 0 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	return log.URL(t), path
}

const limited = "limits: {api: {kind: sliding_log, rate: 20/s}}\n"

// TestHealth: "worker health" says what the paths say.
func TestHealth(t *testing.T) {
	rdb := redistest.Run(t)
	url, config := runWorker(t, rdb, limited)
	address := strings.TrimPrefix(url, "http://")
	ask := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := execute(t.Context(), append([]string{"health", address}, args...), cli.IO{Out: &out, Err: &out})
		return code, out.String()
	}
	for _, args := range [][]string{nil, {"--ready"}} {
		proctest.Until(t, "health", func() bool { code, said := ask(args...); return code == 0 && said == "ok\n" })
	}
	proctest.Replace(t, config, "limits: {api: {kind: wrong}}\n")
	proctest.Until(t, "bad news", func() bool {
		code, said := ask("--ready")
		return code == 1 && strings.HasPrefix(said, "worker: "+address+"/readyz: 503: the config file has errors")
	})
	proctest.Until(t, "health: a wrong config is no reason to restart", func() bool { code, _ := ask(); return code == 0 })
}

// TestHealth_Token: "worker health --ready" says who asks, where that is asked.
func TestHealth_Token(t *testing.T) {
	const token = "open sesame"
	closed, _ := runWorker(t, redistest.Run(t), "page: {token: "+token+"}\n")
	health := func(args ...string) (code int, said string) {
		var out bytes.Buffer
		code = execute(t.Context(), append([]string{"health", strings.TrimPrefix(closed, "http://")}, args...), cli.IO{Out: &out, Err: &out})
		return code, out.String()
	}
	if code, said := health("--ready"); code != 1 || !strings.Contains(said, "401: want the page's token") {
		t.Errorf("worker health --ready without the token: %d, %s", code, said)
	}
	t.Setenv("HEADGATE_PAGE_TOKEN", token)
	proctest.Until(t, "health", func() bool { code, said := health("--ready"); return code == 0 && said == "ok\n" })
}

// TestHealth_TLS: the certificate of a worker on this machine is taken as it is.
func TestHealth_TLS(t *testing.T) {
	files, err := redistest.WriteCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at, _ := runWorker(t, redistest.Run(t), fmt.Sprintf("page: {tls_cert: %s, tls_key: %s}\n", files.Cert, files.Key))
	var said bytes.Buffer
	if code := execute(t.Context(), []string{"health", at}, cli.IO{Out: &said, Err: &said}); code != 0 || said.String() != "ok\n" {
		t.Errorf("worker health %s: %d, %s", at, code, said.String())
	}
}

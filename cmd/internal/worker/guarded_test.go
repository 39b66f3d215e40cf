package worker

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestMetrics_Guarded: metrics and readiness need the page's token, unless they are open. Liveness is
// public.
func TestMetrics_Guarded(t *testing.T) {
	rdb := redistest.Run(t)
	const token = "open sesame"
	closed, _ := runWorker(t, rdb, "page: {token: "+token+"}\n")
	alone, _ := runWorker(t, rdb, limited)
	open, _ := runWorker(t, rdb, "page: {token: "+token+", open_metrics: true}\n")
	for _, c := range []struct {
		name, url, host, authorization string
		guarded, alive                 int
	}{
		{"nothing shown", closed, "", "", 401, 200},
		{"the token", closed, "", "Bearer " + token, 200, 200},
		{"a wrong token", closed, "", "Bearer open sesam", 401, 200},
		{"the token under another name", closed, "metrics.example", "Bearer " + token, 200, 200},
		{"no token, from here", alone, "", "", 200, 200},
		{"no token, under a name that was made to lead here", alone, "evil.example", "", 403, 200},
		{"open", open, "metrics.example", "", 200, 200},
	} {
		for path, want := range map[string]int{"/metrics": c.guarded, "/readyz": c.guarded, "/healthz": c.alive} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = c.host
			r.Header.Set("Authorization", c.authorization)
			var resp *http.Response
			proctest.Until(t, "answer of "+path, func() bool {
				resp, err = http.DefaultClient.Do(r)
				return err == nil && resp.StatusCode != 503 // until the worker is ready
			})
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != want || want != 200 && (bytes.Contains(text, []byte("headgate_")) || bytes.Count(text, []byte("\n")) != 1) {
				t.Errorf("%s: %s: %d %s, want %d", c.name, path, resp.StatusCode, text, want)
			}
		}
	}
}

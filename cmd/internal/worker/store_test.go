package worker

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/internal/config"
)

// A worker notes which Redis it uses. It does not start if it is stopped meanwhile.
func TestStore_Embedded(t *testing.T) {
	t.Chdir(t.TempDir())
	r := config.Default().Redis
	stopped, stop := context.WithCancel(t.Context())
	stop()
	var notes bytes.Buffer
	w := &Worker{options: Options{Notes: &notes}}
	if _, err := w.open(stopped, r); err == nil {
		t.Fatal("a worker that is stopped while it starts has started")
	}
	end, err := w.open(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if want := "worker: no Redis is configured: "; !strings.Contains(notes.String(), want) {
		t.Errorf("want %q in: %s", want, &notes)
	}
}

package page_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/running"
)

// TestWorkers: the processes that run jobs are listed, and those that stopped are not.
func TestWorkers(t *testing.T) {
	w := realWorld(t)
	stop := w.run(func(context.Context, string, string) error { return nil })
	host, err := os.Hostname()
	w.must(err)
	see := func() string { return body(t, ask(w.page(), request("GET", "/workers", nil))) }
	running.Until(t, "a worker", func() bool { return strings.Contains(see(), host) })
	if text := see(); !strings.Contains(text, fmt.Sprint(">", os.Getpid(), "<")) || !strings.Contains(text, ">here<") {
		t.Errorf("the workers are\n%s\nwant this process", text)
	}
	stop()
	if text := see(); !strings.Contains(text, "No worker of this scope") {
		t.Errorf("the workers are\n%s\nwant none", text)
	}
}

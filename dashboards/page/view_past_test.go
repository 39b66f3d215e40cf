package page_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/running"
)

// TestPast: what jobs did is in each span of the history, and who ran them is listed; who
// stops is not, and who dies is gone.
func TestPast(t *testing.T) {
	w := realWorld(t)
	stop := w.run(func(_ context.Context, limit, _ string) error {
		if limit == "mail" {
			return errors.New("no such address")
		}
		return nil
	})
	for i := range 4 {
		w.enqueue(fmt.Sprint("fine-", i), "everyone", "")
	}
	w.enqueue("fails", "mail", "")
	p := w.page()
	see := func(path string) string { return body(t, ask(p, request("GET", path, nil))) }
	for _, span := range []string{"hour", "day", "month"} {
		running.Until(t, "past of "+span, func() bool {
			text := see("/history?past=" + span)
			return strings.Contains(text, `<b class="num">4 done</b>, <b class="num">0 failed</b> (1 failed attempt) since`) &&
				strings.Contains(text, `past=`+span+`" aria-current="true"`) && strings.Count(text, "<polyline") == 4
		})
	}
	host, err := os.Hostname()
	w.must(err)
	text := see("/workers")
	if !strings.Contains(text, host) || !strings.Contains(text, fmt.Sprint(">", os.Getpid(), "<")) || !strings.Contains(text, ">here<") {
		t.Errorf("the workers are\n%s\nwant this process", text)
	}
	stop()
	if text := body(t, ask(w.page(), request("GET", "/workers", nil))); !strings.Contains(text, "No worker of this scope") {
		t.Errorf("the workers are\n%s\nwant none", text)
	}
}

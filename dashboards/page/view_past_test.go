package page_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/running"
	"github.com/headgate/headgate/tasks/frontier"
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

// TestCrawls: each is listed, and one of them with its hosts.
func TestCrawls(t *testing.T) {
	w := miniWorld(t)
	f, ctx := frontier.New(w.rdb, "crawl"), t.Context()
	if !strings.Contains(body(t, ask(w.page(), request("GET", "/crawls", nil))), "There are no crawls yet") {
		t.Error("without a crawl nothing says so")
	}
	_, _, _, err := f.Claim(ctx, frontier.Claim{Run: frontier.Run{Crawl: "news", Name: "1"}, Link: frontier.Link{URL: "https://news.example/"}, Seed: true, Job: "a"})
	w.must(err)
	for path, want := range map[string]string{
		"/crawls":            `href="./crawls?crawl=news"`,
		"/crawls?crawl=news": "news.example",
		"/crawls?crawl=none": "There is no crawl <b>none</b>",
	} {
		if text := body(t, ask(w.page(), request("GET", path, nil))); !strings.Contains(text, want) {
			t.Errorf("%s: want %q in\n%s", path, want, text)
		}
	}
}

package config

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/cmd/internal/expression"
)

// TestCrawlLimit: a config of crawls has a limit for each host, which crawl:fetch needs.
func TestCrawlLimit(t *testing.T) {
	const limits = "limits: {host: {kind: funnel, rate: 5/s}}\n"
	for text, want := range map[string]string{
		"":                                     "[]",
		"crawl: {agent: bot}":                  "[crawl-host 1/s of a.example]",
		"crawl: {rate: 3/s}":                   "[crawl-host 3/s of a.example]",
		`tasks: {"crawl:fetch": {}}`:           "[crawl-host 1/s of a.example]",
		`tasks: {"crawl:fetch": {limits: []}}`: "[crawl-host 1/s of a.example]",
		`tasks: {"crawl:fetch": {limits: [host]}}`:                                                           "[host 5/s of  crawl-host 1/s of a.example]",
		`tasks: {"crawl:fetch": {limits: [{limit: host, key: payload.crawl}]}}`:                              "[host 5/s of c crawl-host 1/s of a.example]",
		`tasks: {"crawl:fetch": {limits: [{limit: host, key: host(payload.url)}]}}`:                          "[host 5/s of a.example]",
		`tasks: {"crawl:fetch": {limits: [{limit: host, key: 'host(payload.url) + "/"'}]}}`:                  "[host 5/s of a.example/]",
		"crawl: {rate: 3/s}\n" + `tasks: {"crawl:fetch": {limits: [{limit: host, key: host(payload.url)}]}}`: "[host 5/s of a.example crawl-host 3/s of a.example]",
		"crawl: {agent: bot}\nqueues: {q: {weight: 1, shards: 4}}":                                           "[]", // the handler keeps the rate
		"crawl: {agent: bot}\nqueues: {q: {weight: 1, shards: 4, shard_by: host(payload.url)}}":              "[crawl-host 1/s of a.example]",
	} {
		c := parse(t, limits+text)
		rule, err := c.Tasks.Rule(&expression.Job{Type: "crawl:fetch", Payload: []byte(`{"url":"https://a.example/x","crawl":"c"}`)})
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, n := range rule.Needs {
			for _, l := range c.Limits {
				if l.Name == n.Limit {
					got = append(got, fmt.Sprintf("%s %s of %s", n.Limit, l.Rate, n.Key))
				}
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
	_, err := Parse("headgate.yaml", []byte("limits: {crawl-host: 1/s}\ncrawl: {agent: bot}"))
	if want := "headgate.yaml:1:22: limits.crawl-host: this is the name of the limit that crawl.rate sets: want another name"; err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}

package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/shard"
)

const sharded = `
queues:
  default: 1
  crawl: {weight: 4, shards: 16, shard_by: host(payload.url), divide: [all]}
limits:
  host: 1/s
  all: {kind: sliding_window, rate: 1000/s}
  api: 5/s
tasks:
  crawl:fetch: {limits: [{limit: host, key: host(payload.url)}, {limit: all}]}
  http:request: {limits: [api]}
`

func TestShards(t *testing.T) {
	c, err := Parse("headgate.yaml", []byte(sharded))
	if err != nil {
		t.Fatal(err)
	}
	want := shard.Queues{"crawl": {Name: "crawl", Count: 16, ByKey: []string{"host"}, Divided: []string{"all"}}}
	if diff := cmp.Diff(want, c.Sharded); diff != "" {
		t.Error(diff)
	}
	if got := c.Queues.Weights(); got["crawl"] != 4 || got["default"] != 1 {
		t.Errorf("weights %v", got)
	}
	if got := c.ServedQueues(); len(got) != 17 || got[0] != "crawl.0" || got[16] != "default" {
		t.Errorf("served queues %v", got)
	}
	shards := c.Shards()
	key, err := shards[0].KeyOf(asynq.NewTask("crawl:fetch", []byte(`{"url": "https://Example.com/x"}`)))
	if len(shards) != 1 || key != "example.com" || err != nil {
		t.Errorf("%+v, key %q, %v", shards, key, err)
	}
	if _, err := shards[0].KeyOf(asynq.NewTask("crawl:fetch", []byte(`{}`))); err == nil {
		t.Error("a task without a key has no error")
	}
}

func TestShards_Errors(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"shards: 16", "shards: 0", "queues.crawl.shards: 0: want 1 to 1000; leave it out for a queue without shards"},
		{"shards: 16", "shards: 1001", "queues.crawl.shards: 1001: want 1 to 1000"},
		{"shards: 16, ", "", "queues.crawl.shard_by: the queue has no shards: want shards as well"},
		{"divide: [all]", "divide: [al]", `queues.crawl.divide[0]: no limit "al": did you mean all?`},
		{"rate: 1000/s", "rate: 15/s", "limits.all.rate: 15/s: want at least 16/s, one for each of the 16 shards of queue crawl"},
		{"divide: [all]", "divide: [all, api]", "limits.api.rate: 5/s: want at least 16/s, one for each of the 16 shards of queue crawl"},
		{"{limit: all}", "{limit: all, cost: 100}", "queues.crawl.divide[0]: a task takes 100 permits of limit all at once, and a shard has 62: no job could ever run"},
		{", divide: [all]", "", "tasks.crawl:fetch.limits[1]: limit all is not one of queue crawl: add it to the queue's divided limits"},
		{"limits: [api]", "limits: [{limit: host, key: payload.user}]", "tasks.http:request.limits[0]: limit host counts by the shard key of queue crawl in other tasks: want key: host(payload.url), or divide: [host] in queues.crawl"},
		{"default: 1", "other: {shards: 2, divide: [all]}", "queues: shards of queue other: limit all: queue crawl uses it already; want another limit"},
		{"default: 1", "crawl.3: 1", "queues.\"crawl.3\": it is a shard of queue crawl: want another name"},
	} {
		text := strings.Replace(sharded, test.old, test.new, 1)
		if _, err := Parse("headgate.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v\nwant %s", test.new, err, test.want)
		}
	}
}

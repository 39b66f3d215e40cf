package worker

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/redistest"
)

func TestEvictionWarning(t *testing.T) {
	cluster := redistest.RunCluster(t).Client()
	defer cluster.Close()
	if err := cluster.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil { // on any node
		t.Fatal(err)
	}
	_, mini := redistest.Mini(t)
	evicting, keeping := redistest.Run(t, "--maxmemory-policy", "volatile-ttl"), redistest.Run(t)
	tests := []struct {
		name, url, want string
		rdb             redis.UniversalClient
	}{
		{"one that keeps everything", keeping.URL(), "", keeping.Client()},
		{
			"one that does not", "redis://user:secret@" + evicting.Addr(),
			"is volatile-ttl; to mend that: redis-cli --askpass --user user -u redis://" + evicting.Addr() + " CONFIG SET maxmemory-policy noeviction",
			evicting.Client(),
		},
		{
			"behind sentinels", "redis-sentinel://" + evicting.Addr() + "/main",
			"to mend that: redis-cli CONFIG SET maxmemory-policy noeviction (on each server)",
			evicting.Client(),
		},
		{
			"a node of a cluster", "redis-cluster://one,two",
			"is allkeys-lru; to mend that: redis-cli CONFIG SET maxmemory-policy noeviction (on each server)",
			cluster,
		},
		{"one that does not say", "redis://mini", "", mini},
	}
	for _, tt := range tests {
		r, err := config.ParseRedisURL(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		got := evictionWarning(t.Context(), tt.rdb, r)
		if (got == "") != (tt.want == "") || !strings.HasSuffix(got, tt.want) {
			t.Errorf("%s: %q, want the end %q", tt.name, got, tt.want)
		}
	}
}

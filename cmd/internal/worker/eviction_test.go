package worker

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
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
		name, policy string
		rdb          redis.UniversalClient
	}{
		{"one that keeps everything", "", keeping.Client()},
		{"one that does not", "volatile-ttl", evicting.Client()},
		{"a node of a cluster", "allkeys-lru", cluster},
		{"one that does not say", "", mini},
	}
	for _, tt := range tests {
		got := evictionWarning(t.Context(), tt.rdb)
		if (got == "") != (tt.policy == "") || !strings.Contains(got, "is "+tt.policy+":") && tt.policy != "" {
			t.Errorf("%s: %q, want it to name %q", tt.name, got, tt.policy)
		}
		// The worker's own user has no right to CONFIG.
		if strings.Contains(got, "redis-cli") || strings.Contains(got, "CONFIG") {
			t.Errorf("%s: %q names a command that this user may not run", tt.name, got)
		}
	}
}

package config

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// No Redis URL shows its password, whatever is wrong with the rest of it.
func FuzzParseRedisURL(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range [][2]string{
		{"redis", "localhost:6379/0"},
		{"rediss-cluster", "a,b:1"},
		{"redis-sentinel", "a,b/master/1?username=x"},
		{"unix", "/run/redis.sock?db=1"},
		{"redis", "[::1"},
		{"redis", "h:99999/%zz"},
		{"http", "h"},
		{"redis", "h?pool_size=x"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, scheme, rest string) {
		const password = "hunter2hunter2"
		r, err := ParseRedisURL(scheme + "://user:" + password + "@" + rest)
		if strings.Contains(r.String(), password) || err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("%q and %q show the password: %s, %v", scheme, rest, r, err)
		}
		if err == nil && r.IsZero() {
			t.Errorf("%q and %q give nothing, without an error", scheme, rest)
		}
	})
}

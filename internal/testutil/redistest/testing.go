// Package redistest starts Redis for tests and benchmarks: miniredis in process, or redis-server
// processes alone, with TLS or users, under a sentinel or as a cluster. Each call starts servers of
// its own, within some 20 ms, in a temporary folder that is removed with them.
package redistest

import (
	"context"
	"io"
	"os"
	"slices"

	"github.com/redis/go-redis/v9"
)

// TB is a *testing.T, *testing.B or *rapid.T. Servers and clients end with it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Real returns a client of a new redis-server.
func Real(t TB) redis.UniversalClient {
	t.Helper()
	rdb := Run(t).Client()
	closeAfter(t, rdb)
	return rdb
}

// Run is [Start] for a test.
func Run(t TB, args ...string) *Server {
	t.Helper()
	return begin(t, &Server{dir: Folder(t), args: args})
}

// RunTLS is [Run] for a server that speaks only TLS. [Server.Options] trusts its certificate, and
// [Server.Certificates] has the files.
func RunTLS(t TB, args ...string) *Server {
	t.Helper()
	s := &Server{dir: Folder(t)}
	var err error
	if s.certificates, err = WriteCertificates(s.dir); err == nil {
		s.tls, err = s.certificates.config()
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	s.args = append([]string{
		"--tls-cert-file", s.certificates.Cert,
		"--tls-key-file", s.certificates.Key,
		"--tls-ca-cert-file", s.certificates.CA,
		"--tls-auth-clients", "no",
	}, args...)
	return begin(t, s)
}

func begin(t TB, s *Server) *Server {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("%v", err)
	}
	closeAfter(t, s)
	return s
}

// Folder returns a new folder, which ends with the test. The path of a Unix socket has at most 104
// characters, and T.TempDir is longer on every Mac.
func Folder(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "r")
	if err != nil {
		dir, err = os.MkdirTemp("", "r")
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func closeAfter(t TB, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Fatalf("close %T: %v", c, err)
		}
	})
}

// Contents returns the values of all keys of headgate.
func Contents(t TB, rdb redis.UniversalClient) map[string]any {
	t.Helper()
	return ContentsOf(t, rdb, "hg:*")
}

// ContentsOf returns the values of all keys whose names match a pattern.
func ContentsOf(t TB, rdb redis.UniversalClient, pattern string) map[string]any {
	t.Helper()
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, pattern).Result()
	if err != nil {
		t.Fatalf("%v", err)
	}
	all := map[string]any{}
	for _, key := range keys {
		switch kind := rdb.Type(ctx, key).Val(); kind {
		case "string":
			all[key] = rdb.Get(ctx, key).Val()
		case "list":
			all[key] = rdb.LRange(ctx, key, 0, -1).Val()
		case "hash":
			all[key] = rdb.HGetAll(ctx, key).Val()
		case "set":
			members := rdb.SMembers(ctx, key).Val()
			slices.Sort(members)
			all[key] = members
		case "zset":
			all[key] = rdb.ZRangeWithScores(ctx, key, 0, -1).Val()
		case "stream":
			all[key] = rdb.XRange(ctx, key, "-", "+").Val()
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}

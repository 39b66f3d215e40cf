package redistest_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

func TestTLS(t *testing.T) {
	s := redistest.RunTLS(t)
	rdb := s.Client()
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a client with the server's options: %v", err)
	}

	// A client that has only the address must not trust it.
	options, err := redis.ParseURL(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	stranger := redis.NewClient(options)
	defer stranger.Close()
	err = stranger.Ping(t.Context()).Err()
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		t.Errorf("a client without the certificate got %v", err)
	}

	// With the certificate file it must.
	cert, err := os.ReadFile(s.Certificates().CA)
	if err != nil {
		t.Fatal(err)
	}
	options.TLSConfig.RootCAs = x509.NewCertPool()
	options.TLSConfig.RootCAs.AppendCertsFromPEM(cert)
	friend := redis.NewClient(options)
	defer friend.Close()
	if err := friend.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a client with the certificate file: %v", err)
	}
}

func TestSentinelFailsOver(t *testing.T) {
	s := redistest.RunSentinel(t)
	rdb := s.Client()
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := rdb.Wait(t.Context(), 1, 0).Result(); n != 1 || err != nil {
		t.Fatalf("%d replicas have the write (%v), want 1", n, err)
	}
	if err := s.FailOver(); err != nil {
		t.Fatal(err)
	}
	if got, err := rdb.Get(t.Context(), "key").Result(); got != "value" {
		t.Errorf("after the failover key is %q, %v", got, err)
	}
}

func TestClusterSpreadsKeys(t *testing.T) {
	c := redistest.RunCluster(t)
	rdb := c.Client()
	defer rdb.Close()
	for i := range 100 {
		if err := rdb.Set(t.Context(), fmt.Sprintf("key:%d", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for _, node := range c.Nodes {
		one := node.Client()
		defer one.Close()
		n, err := one.DBSize(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			t.Errorf("node %s holds no key", node.Addr())
		}
		total += n
	}
	if total != 100 {
		t.Errorf("the nodes hold %d keys, want 100", total)
	}
}

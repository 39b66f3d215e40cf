package config

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

func parseRedis(t *testing.T, text string) Redis {
	t.Helper()
	r, err := ParseRedisURL(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

// connected returns a client of a kind.
func connected[C redis.UniversalClient](t *testing.T, r Redis) C {
	t.Helper()
	client, err := r.client(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client.(C)
}

func TestRedisSingle(t *testing.T) {
	tests := []struct {
		text, network, addr, user, password, shown string
		db                                         int
		tls                                        string
	}{
		{text: "redis://localhost:6379/0", network: "tcp", addr: "localhost:6379", shown: "redis://localhost:6379/0"},
		{text: "redis://h", network: "tcp", addr: "h:6379", shown: "redis://h"},
		{text: "redis://[::1]:7000/3", network: "tcp", addr: "[::1]:7000", db: 3, shown: "redis://[::1]:7000/3"},
		{text: "rediss://u:p%40ss@h:1/2", network: "tcp", addr: "h:1", user: "u", password: "p@ss", db: 2, tls: "h", shown: "rediss://h:1/2"},
		{text: "unix:///run/redis.sock?db=4", network: "unix", addr: "/run/redis.sock", db: 4, shown: "unix:///run/redis.sock"},
	}
	for _, test := range tests {
		r := parseRedis(t, test.text)
		opts := connected[*redis.Client](t, r).Options()
		if opts.Network != test.network || opts.Addr != test.addr || opts.Username != test.user ||
			opts.Password != test.password || opts.DB != test.db {
			t.Errorf("%s: %s %s user %q password %q db %d", test.text, opts.Network, opts.Addr, opts.Username, opts.Password, opts.DB)
		}
		if (opts.TLSConfig != nil) != (test.tls != "") || opts.TLSConfig != nil && opts.TLSConfig.ServerName != test.tls {
			t.Errorf("%s: TLS %+v, want server name %q", test.text, opts.TLSConfig, test.tls)
		}
		if opts.MaxRetries != 10 || opts.MaxRetryBackoff != time.Second {
			t.Errorf("%s: %d retries, up to %s apart", test.text, opts.MaxRetries, opts.MaxRetryBackoff)
		}
		if r.String() != test.shown || r.IsZero() {
			t.Errorf("%s is shown as %q, zero %t", test.text, r, r.IsZero())
		}
	}
	client := connected[*redis.Client](t, parseRedis(t, "redis://h?max_retries=2&pool_size=50"))
	if o := client.Options(); o.MaxRetries != 2 || o.PoolSize != 50 {
		t.Errorf("options: %d retries, pool of %d", o.MaxRetries, o.PoolSize)
	}
}

func TestRedisSentinel(t *testing.T) {
	r := parseRedis(t, "rediss-sentinel://:pw@h1:1,h2,[::1]/mymaster/5?password=other")
	opts := r.options.(*redis.FailoverOptions)
	if diff := cmp.Diff([]string{"h1:1", "h2:26379", "[::1]:26379"}, opts.SentinelAddrs); diff != "" {
		t.Error(diff)
	}
	if opts.MasterName != "mymaster" || opts.DB != 5 || opts.SentinelPassword != "pw" || opts.Password != "other" {
		t.Errorf("master %q db %d passwords %q %q", opts.MasterName, opts.DB, opts.SentinelPassword, opts.Password)
	}
	if made := connected[*redis.Client](t, r).Options(); made.TLSConfig == nil || made.TLSConfig.ServerName != "" || made.MaxRetries != 10 || made.ReadTimeout != 5*time.Second {
		t.Errorf("TLS %+v, retries %d, timeout %s", made.TLSConfig, made.MaxRetries, made.ReadTimeout)
	}
	if r.String() != "rediss-sentinel://h1:1,h2,[::1]/mymaster/5" {
		t.Errorf("shown as %s", r)
	}
	for _, text := range []string{"redis-sentinel://[fe80::1%25eth0]/m", "redis-sentinel://[fe80::1%25eth0]:26379,h2/m"} {
		if addr := parseRedis(t, text).options.(*redis.FailoverOptions).SentinelAddrs[0]; addr != "[fe80::1%eth0]:26379" {
			t.Errorf("%s is at %s", text, addr)
		}
	}
}

func TestRedisCluster(t *testing.T) {
	r := parseRedis(t, "redis-cluster://u:p@h1,h2:7001,h3/0?read_timeout=7s")
	opts := connected[*redis.ClusterClient](t, r).Options()
	if diff := cmp.Diff([]string{"h1:6379", "h2:7001", "h3:6379"}, opts.Addrs); diff != "" {
		t.Error(diff)
	}
	if opts.Username != "u" || opts.Password != "p" || opts.ReadTimeout != 7*time.Second || opts.TLSConfig != nil {
		t.Errorf("user %q password %q timeout %s TLS %v", opts.Username, opts.Password, opts.ReadTimeout, opts.TLSConfig)
	}
	if tls := connected[*redis.ClusterClient](t, parseRedis(t, "rediss-cluster://h1,h2")).Options().TLSConfig; tls == nil || tls.ServerName != "" {
		t.Errorf("TLS %+v", tls)
	}
}

// An own authority and a certificate go to every kind of Redis that is over TLS, and
// leave alone by which name each server is checked.
func TestRedisTLS(t *testing.T) {
	files, err := redistest.WriteCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for url, name := range map[string]string{"rediss://h": "h", "rediss-sentinel://h1,h2/it": "", "rediss-cluster://h1,h2": ""} {
		r := parseRedis(t, url)
		if err := r.UseTLS(TLS{CA: files.CA, Cert: files.ClientCert, Key: files.ClientKey}); err != nil {
			t.Fatal(err)
		}
		client, err := r.client(true)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var c *tls.Config
		switch client := client.(type) {
		case *redis.Client:
			c = client.Options().TLSConfig
		case *redis.ClusterClient:
			c = client.Options().TLSConfig
		}
		if c.RootCAs == nil || c.GetClientCertificate == nil || c.ServerName != name {
			t.Errorf("%s: TLS %+v, want what the config says, and the name %q", url, c, name)
		}
	}
}

// No error about a URL shows its password.
func TestBadRedisURL(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", "not a Redis URL: want redis://HOST"},
		{"localhost:6379", "not a Redis URL: want redis://HOST"},
		{"http://u:secret@h", `scheme "http": want redis://HOST`},
		{"redis-ring://u:secret@h", `scheme "redis-ring": want redis://HOST`},
		{"unix-cluster:///secret", `scheme "unix-cluster": want redis://HOST`},
		{"redis://:secret@h1,h2", "several hosts: want redis-cluster:// or redis-sentinel://"},
		{"redis://:secret@h:port", "want HOST:PORT, and %XX"},
		{"redis://:secret@h:70010", "port 70010: want 1 to 65535"},
		{"redis-cluster://:secret@h,h:0", "port 0: want 1 to 65535"},
		{"redis://:sec/ret@h", "want %XX for special characters"},
		{"redis://:se@cr?et=secret@h:1", "want %XX for special characters"},
		{"redis://:se@cr#secret@h:1", "want %XX for special characters"},
		{"${env:REDIS}", "want the environment variable HEADGATE_REDIS"},
		{"redis://:${env:PASSWORD}@h:1", "want the environment variable HEADGATE_REDIS"},
		{"redis://user/secret@h", "want %XX for special characters"},
		{"redis://:%secret@h", "want HOST:PORT, and %XX"},
		{"redis://:secret@h/one", `invalid database number: "one"`},
		{"redis://:secret@h?retries=1", "unexpected option: retries"},
		{"redis://:secret@h?pool_size=x", "invalid pool_size number"},
		{"redis-sentinel://:secret@h1,h2", "want the name of the master after the hosts"},
		{"redis-sentinel://:secret@h1/master/x", "invalid database number"},
		{"redis-cluster://:secret@h1/3", "a cluster has only database 0"},
		{"unix://", "empty unix socket path"},
	}
	for _, test := range tests {
		r, err := ParseRedisURL(test.text)
		if err == nil || !strings.Contains(err.Error(), test.want) || !r.IsZero() {
			t.Errorf("%s: %v\nwant …%s…", test.text, err, test.want)
			continue
		}
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec/") {
			t.Errorf("%s: the error shows the password: %v", test.text, err)
		}
	}
}

// TestConnectWaits: Redis is waited for as long as that may help.
func TestConnectWaits(t *testing.T) {
	defer func(d time.Duration) { reachTimeout = d }(reachTimeout)
	reachTimeout = time.Hour // however busy this machine is
	m := miniredis.RunT(t)
	for answer, waits := range map[string]bool{
		"ERR max number of clients reached": true, "LOADING Redis is loading": true,
		"WRONGPASS invalid": false, "NOPERM no": false, "ERR what": false,
	} {
		asked := 0
		m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd == "PING" {
				asked++
			}
			if cmd != "PING" || asked > 3 {
				return false
			}
			c.WriteError(answer)
			return true
		})
		_, end, err := parseRedis(t, "redis://"+m.Addr()).Connect(t.Context())
		if waits != (err == nil) || !waits && (asked != 1 || !strings.Contains(err.Error(), answer)) {
			t.Errorf("%s: it is asked %d times: %v", answer, asked, err)
		}
		if err == nil {
			_ = end()
		}
	}
}

// TestClient_HoldsDeadlines: a call to a Redis that is stopped ends with its context, and not with
// the longer timeouts of the client.
func TestClient_HoldsDeadlines(t *testing.T) {
	var network net.ListenConfig
	stopped, err := network.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	for _, kind := range []string{"redis://%s/0?", "redis-cluster://%s?", "redis-sentinel://%s/master?"} {
		rdb := connected[redis.UniversalClient](t, parseRedis(t, fmt.Sprintf(kind, stopped.Addr())+"read_timeout=24h&dial_timeout=24h"))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		ended := make(chan error, 1)
		go func() { ended <- rdb.Ping(ctx).Err() }()
		proctest.Until(t, "end of the call to "+kind, func() (bool, any) {
			select {
			case err = <-ended:
				return true, nil
			default:
				return false, nil
			}
		})
		if err == nil {
			t.Errorf("%s answers", kind)
		}
		cancel()
	}
}

// TestConnect_UnknownCertificate: the error is about the certificate, and not a timeout.
func TestConnect_UnknownCertificate(t *testing.T) {
	defer func(d time.Duration) { reachTimeout = d }(reachTimeout)
	reachTimeout = time.Hour // however busy this machine is
	s := redistest.RunTLS(t)
	for _, kind := range []string{"rediss", "rediss-cluster", "rediss-sentinel"} {
		_, _, err := parseRedis(t, kind+"://"+s.Addr()+"/0").Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestConnect_ClusterWithDeadNode: of the nodes in a URL one that answers is enough, and where
// none does, the error has the reason.
func TestConnect_ClusterWithDeadNode(t *testing.T) {
	c := redistest.RunCluster(t)
	for range 4 { // they are asked in any order
		_, end, err := parseRedis(t, "redis-cluster://127.0.0.1:1,"+c.Options().Addrs[0]).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = end()
	}
	if _, _, err := parseRedis(t, "redis-cluster://127.0.0.1:1,127.0.0.1:2").Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("no server listens: %v", err)
	}
}

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

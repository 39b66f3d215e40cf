package embedded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

func host(t *testing.T, f Folder, prepare Prepare) (*Host, *redis.Client) {
	t.Helper()
	h := f.NewHost(prepare)
	rdb := redis.NewClient(&redis.Options{Dialer: h.Dial, MaxRetries: 10})
	t.Cleanup(func() { rdb.Close(); h.Close() })
	return h, rdb
}

// When the process that runs Redis stops, the others go on where it was: one
// of them takes over, and no command is lost.
func TestHostsTakeOver(t *testing.T) {
	f := Folder(t.TempDir())
	var hosts []*Host
	var clients []*redis.Client
	for range 4 {
		h, rdb := host(t, f, nil)
		hosts, clients = append(hosts, h), append(clients, rdb)
	}
	want := int64(0)
	for i, h := range hosts {
		var wg sync.WaitGroup
		for _, rdb := range clients[i:] {
			wg.Go(func() {
				for range 100 {
					if err := rdb.Incr(context.Background(), "n").Err(); err != nil {
						t.Error(err)
					}
				}
			})
			want += 100
		}
		wg.Wait()
		runs := 0
		for _, other := range hosts {
			if other.Runs() {
				runs++
			}
		}
		if runs != 1 {
			t.Errorf("%d hosts run a server, want 1", runs)
		}
		clients[i].Close()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	_, rdb := host(t, f, nil)
	if got, err := rdb.Get(t.Context(), "n").Int64(); got != want || err != nil {
		t.Errorf("n is %d, %v; want %d", got, err, want)
	}
}

// A server is found only once it is ready.
func TestHostIsReadyBeforeItIsFound(t *testing.T) {
	f := Folder(t.TempDir())
	started := 0
	_, rdb := host(t, f, func(s *Server) (func(), error) {
		if addr, ok := f.Find(t.Context()); ok {
			t.Errorf("found %s before it was ready", addr)
		}
		return func() {
			if _, ok := f.Find(t.Context()); !ok {
				t.Error("started, and not to be found")
			}
			started++
		}, client(t, s).Set(t.Context(), "ready", "yes", 0).Err()
	})
	if got := rdb.Get(t.Context(), "ready").Val(); got != "yes" || started != 1 {
		t.Errorf("ready is %q, and it was started %d times", got, started)
	}
}

// A host that cannot start a server says why, and what was kept stays.
func TestHostThatIsNotReady(t *testing.T) {
	f := Folder(t.TempDir())
	first := start(t, f)
	if err := client(t, first).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	bad := f.NewHost(func(*Server) (func(), error) { return nil, errors.New("no luck") })
	_, err := bad.Dial(t.Context(), "tcp", "")
	if _, ok := errors.AsType[*StartError](err); !ok || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("Dial gives %v, want a StartError", err)
	}
	_, rdb := host(t, f, nil)
	if got := rdb.Get(t.Context(), "key").Val(); got != "value" {
		t.Errorf("key is %q", got)
	}
}

func TestClosedHostStartsNothing(t *testing.T) {
	f := Folder(t.TempDir())
	h := f.NewHost(nil)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Dial(t.Context(), "tcp", ""); err == nil {
		t.Error("a closed host dials")
	}
	s := start(t, f)
	conn, err := h.Dial(t.Context(), "tcp", "")
	if err != nil {
		t.Fatalf("dial another's server, at %s: %v", s.Addr(), err)
	}
	conn.Close()
}

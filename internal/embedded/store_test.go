package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// variants runs a test with the redis-server of this machine, and with none on the PATH.
func variants(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("redis-server", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), FolderName)) })
	t.Run("miniredis", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		test(t, filepath.Join(t.TempDir(), FolderName))
	})
}

func open(t *testing.T, dir string) (*Store, *redis.Client) {
	t.Helper()
	s, err := New(dir, func(line string) { t.Log(line) })
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Dialer: s.Dial, MaxRetries: 10, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close(); _ = s.Close() })
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return s, rdb
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// filled sets a key of each type.
func filled(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	must(t, rdb.Set(ctx, "string", "\x00\xff\r\n", time.Hour).Err(), rdb.RPush(ctx, "list", "b", "a", "b").Err(),
		rdb.HSet(ctx, "hash", "field", "value", "other", "").Err(), rdb.SAdd(ctx, "set", "a", "b").Err(),
		rdb.ZAdd(ctx, "zset", redis.Z{Score: 1764069999.125, Member: "a"}, redis.Z{Score: -2, Member: "b"}).Err(),
		rdb.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "5-1", Values: []string{"a", "1", "b", "2"}}).Err(),
		rdb.XAdd(ctx, &redis.XAddArgs{Stream: "stream", ID: "5-2", Values: []string{"a", "3"}}).Err())
}

func wantFilled(t *testing.T, rdb *redis.Client) {
	t.Helper()
	ctx := t.Context()
	set := rdb.SMembers(ctx, "set").Val()
	slices.Sort(set)
	got := fmt.Sprintf("%q %v %v %v %v %v", rdb.Get(ctx, "string").Val(), rdb.LRange(ctx, "list", 0, -1).Val(), rdb.HGetAll(ctx, "hash").Val(),
		set, rdb.ZRangeWithScores(ctx, "zset", 0, -1).Val(), rdb.XRange(ctx, "stream", "-", "+").Val())
	want := `"\x00\xff\r\n" [b a b] map[field:value other:] [a b] [{-2 b} {1.764069999125e+09 a}] [{5-1 map[a:1 b:2] 0 0} {5-2 map[a:3] 0 0}]`
	if got != want {
		t.Errorf("it keeps\n%s, want\n%s", got, want)
	}
	if ttl := rdb.TTL(ctx, "string").Val(); ttl < 59*time.Minute || ttl > time.Hour {
		t.Errorf("the key expires in %s, want an hour", ttl)
	}
}

func TestStore_Close_KeepsAllTypes(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		s, rdb := open(t, dir)
		filled(t, rdb)
		must(t, s.Close())
		_, rdb = open(t, dir)
		wantFilled(t, rdb)
	})
}

// The data of miniredis goes over to a redis-server that is installed later. Without it, the data
// of redis-server is an error and not an empty Redis.
func TestStore_RedisServer_IsInstalledLater(t *testing.T) {
	dir, path := t.TempDir(), os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	s, rdb := open(t, dir)
	filled(t, rdb)
	must(t, s.Close())
	t.Setenv("PATH", path)
	s, rdb = open(t, dir)
	if text := rdb.Info(t.Context(), "server").Val(); !strings.Contains(text, "redis_mode") {
		t.Errorf("it is not redis-server: %s", text)
	}
	wantFilled(t, rdb)
	must(t, s.Close())
	t.Setenv("PATH", t.TempDir())
	s, err := New(dir, nil)
	must(t, err)
	if _, err := s.Dial(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "redis-server has kept the jobs in "+dir+", but there is no redis-server on the PATH") {
		t.Errorf("without redis-server: %v", err)
	}
	must(t, s.Close())
}

func TestStore_OldRedisServer_IsNotUsed(t *testing.T) {
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "redis-server"), []byte("#!/bin/sh\necho Redis server v=6.0.16 sha=0\n"), 0o700))
	t.Setenv("PATH", bin)
	var said []string
	s, err := New(t.TempDir(), func(line string) { said = append(said, line) })
	must(t, err)
	_, err = s.Dial(t.Context(), "", "")
	must(t, err, s.Close())
	if text := strings.Join(said, "\n"); !strings.Contains(text, "miniredis") || !strings.Contains(text, "faster and safer, but "+bin+"/redis-server has version 6.0.16, and 7 is needed") {
		t.Errorf("it says %q", text)
	}
}

// When the process that runs the server ends, another takes over, and no command is lost. A client
// that got no reply sends its command again.
func TestStore_Takeover_LosesNoCommand(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		var stores []*Store
		var clients []*redis.Client
		for range 4 {
			s, rdb := open(t, dir)
			stores, clients = append(stores, s), append(clients, rdb)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		sent := make([]int, len(clients))
		last := len(clients) - 1
		for i := range 3 {
			wg.Go(func() {
				for ; ; sent[i]++ {
					select {
					case <-stop:
						return
					default:
						if err := clients[last].Incr(context.Background(), "n").Err(); err != nil {
							t.Error(err)
							return
						}
					}
				}
			})
		}
		for _, s := range stores[:last] {
			must(t, s.Close())
			must(t, clients[last].Ping(t.Context()).Err())
		}
		close(stop)
		wg.Wait()
		if n, err := clients[last].Get(t.Context(), "n").Int(); n < sent[0]+sent[1]+sent[2] || err != nil {
			t.Errorf("n is %d, %v, after %v commands with a reply", n, err, sent)
		}
	})
}

// Two processes that start at once use one server.
func TestStore_Concurrent_OneServer(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				s, err := New(dir, nil)
				if err == nil {
					rdb := redis.NewClient(&redis.Options{Dialer: s.Dial, MaxRetries: 10})
					err = errors.Join(rdb.Incr(t.Context(), "n").Err(), rdb.Close(), s.Close())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, rdb := open(t, dir); rdb.Get(t.Context(), "n").Val() != "5" {
			t.Errorf("n is %s, want 5", rdb.Get(t.Context(), "n").Val())
		}
	})
}

func TestStore_Crash_IsRestarted(t *testing.T) {
	s, rdb := open(t, t.TempDir())
	filled(t, rdb)
	for text := ""; !strings.Contains(text, "aof_pending_bio_fsync:0") || !strings.Contains(text, "aof_buffer_length:0"); {
		text = rdb.Info(t.Context(), "persistence").Val() // until all is in the file
	}
	must(t, s.redis.(*child).process.Kill())
	<-s.redis.(*child).exited
	wantFilled(t, rdb)
}

func TestStore_DamagedFile_NamesTheFile(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "appendonly.aof"), []byte("*2\r\n$3\r\nFOO\r\n$1\r\nx\r\n*3\r\n"), 0o600))
		s, err := New(dir, nil)
		must(t, err)
		defer s.Close()
		_, err = s.Dial(t.Context(), "", "")
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "FOO") {
			t.Errorf("Dial gives %v", err)
		}
	})
}

// A process whose folder was removed joins the server that other processes find.
func TestStore_RemovedFolder_JoinsTheNext(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		first, one := open(t, dir)
		must(t, one.Set(t.Context(), "key", "old", 0).Err(), os.RemoveAll(dir))
		_, other := open(t, dir)
		must(t, other.Set(t.Context(), "key", "new", 0).Err())
		if first.check() {
			t.Error("the first store goes on")
		}
		if got, err := one.Get(t.Context(), "key").Result(); got != "new" {
			t.Errorf("key is %q, %v; want new", got, err)
		}
		must(t, first.Close())
		must(t, other.Ping(t.Context()).Err())
	})
}

func TestStore_OnlyItsUserConnects(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		must(t, os.Mkdir(dir, 0o755))
		s, _ := open(t, dir)
		if stat, err := os.Stat(dir); err != nil || stat.Mode().Perm() != 0o700 {
			t.Errorf("the folder is %v, %v; want mode 0700", stat.Mode(), err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, ".gitignore")); string(text) != "*\n" {
			t.Errorf(".gitignore is %q, %v", text, err)
		}
		if m, ok := s.redis.(*mini); ok {
			stranger := redis.NewClient(&redis.Options{Addr: m.listener.Addr().String()})
			defer stranger.Close()
			if err := stranger.Keys(t.Context(), "*").Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
				t.Errorf("without the password: %v", err)
			}
			if stat, err := os.Stat(s.path(addressFile)); err != nil || stat.Mode().Perm() != 0o600 {
				t.Errorf("the password is in a file of mode %v, %v; want 0600", stat.Mode(), err)
			}
		}
	})
}

// A crash leaves the address of a server whose port can be another program's by now.
func TestStore_Crash_AddressIsNotUsed(t *testing.T) {
	trap, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer trap.Close()
	go func() {
		if conn, err := trap.Accept(); err == nil {
			_ = conn.Close()
			t.Error("a client has connected to another program")
		}
	}()
	variants(t, func(t *testing.T, dir string) {
		must(t, os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, addressFile), fmt.Append(nil, trap.Addr(), " password"), 0o600))
		open(t, dir)
	})
}

// The path of a socket has about a hundred bytes, that of a project can have more.
func TestStore_DeepFolder_HasMiniredis(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep", 30))
	s, rdb := open(t, dir)
	must(t, rdb.Set(t.Context(), "key", "value", 0).Err(), s.Close())
	_, rdb = open(t, dir)
	if got := rdb.Get(t.Context(), "key").Val(); got != "value" {
		t.Errorf("key is %q", got)
	}
}

func TestStore_FolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	s, err := New(filepath.Join(file, FolderName), nil)
	must(t, err)
	if _, err := s.Dial(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), "none can keep its data in "+file) {
		t.Errorf("Dial gives %v", err)
	}
}

// What is saved is one moment: a job that moves meanwhile is in one place.
func TestMini_Save_IsOneMoment(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, rdb := open(t, t.TempDir())
	const jobs = 500
	for range jobs {
		must(t, rdb.RPush(t.Context(), "a", "job").Err())
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for from, to := "a", "z"; ; from, to = to, from {
				for range jobs {
					select {
					case <-stop:
						return
					default:
						_ = rdb.LMove(context.Background(), from, to, "right", "left").Err()
					}
				}
			}
		})
	}
	for range 20 {
		if !s.check() || s.unsaved != nil {
			t.Error(s.unsaved)
		}
		m, err := newMini()
		m.file = s.path("appendonly.aof")
		must(t, err, m.load())
		a, _ := m.List("a")
		z, _ := m.List("z")
		if len(a)+len(z) != jobs {
			t.Errorf("saved are %d and %d jobs, want %d together", len(a), len(z), jobs)
		}
		must(t, m.stop(false))
	}
	close(stop)
	wg.Wait()
}

// A disk that is full is said once, keeps what was saved, and is said to work again.
func TestMini_SavingThatFails_IsSaidOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var said []string
	s, err := New(t.TempDir(), func(line string) { said = append(said, line) })
	must(t, err)
	_, err = s.Dial(t.Context(), "", "")
	must(t, err)
	defer s.Close()
	s.check()
	must(t, os.Mkdir(s.path("appendonly.aof.new"), 0o700))
	s.check()
	s.check()
	must(t, os.Remove(s.path("appendonly.aof.new")))
	s.check()
	text := strings.Join(said[1:], "\n")
	if strings.Count(text, "is a directory") != 1 || strings.Count(text, "works again") != 1 {
		t.Errorf("it says %q", text)
	}
}

// A client that reads nothing, such as a stopped process, holds up no other for long.
func TestMini_ClientThatReadsNothing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, rdb := open(t, t.TempDir())
	large := strings.Repeat("x", 1<<20)
	conn, err := s.Dial(t.Context(), "", "")
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n"))
	must(t, err)
	for rdb.PubSubNumSub(t.Context(), "news").Val()["news"] == 0 {
		continue // until it is heard
	}
	for range 20 {
		must(t, rdb.Publish(t.Context(), "news", large).Err())
	}
}

// A process that is stopped keeps the store: the error of the others names it.
func TestStore_ServerThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	s, _ := open(t, dir)
	must(t, s.redis.(*child).process.Signal(syscall.SIGSTOP))
	defer s.redis.(*child).process.Signal(syscall.SIGCONT)
	other, err := New(dir, nil)
	must(t, err)
	if _, err := other.Dial(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d runs the Redis in %s, which does not answer", os.Getpid(), dir)) {
		t.Errorf("Dial gives %v", err)
	}
}

// The server ends with a process that is killed.
func TestStore_KilledProcess(t *testing.T) {
	if dir := os.Getenv("KILLED_STORE"); dir != "" {
		s, err := New(dir, nil)
		must(t, err)
		_, err = s.Dial(t.Context(), "", "")
		must(t, err)
		must(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	}
	variants(t, func(t *testing.T, dir string) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestStore_KilledProcess$")
		cmd.Env = append(os.Environ(), "KILLED_STORE="+dir)
		if err := cmd.Run(); err == nil || err.Error() != "signal: killed" {
			t.Fatal(err)
		}
		s, rdb := open(t, dir)
		runs := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.redis != nil
		}
		for !runs() { // for as long as the killed process's server goes on
			must(t, rdb.Ping(t.Context()).Err())
		}
	})
}

func TestStore_Closed_StartsNothing(t *testing.T) {
	s, err := New(t.TempDir(), nil)
	must(t, err, s.Close())
	if _, err := s.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial gives %v", err)
	}
}

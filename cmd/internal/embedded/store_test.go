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
	s := &Store{Dir: dir, Say: func(line string) { t.Log(line) }}
	rdb := redis.NewClient(&redis.Options{Dialer: s.Dial, MaxRetries: 10, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close(); _ = s.Close() })
	must(t, rdb.Ping(t.Context()).Err())
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

// The data of miniredis goes over to a redis-server that is installed later.
func TestStore_RedisServer_IsInstalledLater(t *testing.T) {
	dir, path := t.TempDir(), os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	s, rdb := open(t, dir)
	filled(t, rdb)
	must(t, s.Close())
	t.Setenv("PATH", path)
	s, rdb = open(t, dir)
	wantFilled(t, rdb)
	must(t, rdb.BgRewriteAOF(t.Context()).Err()) // only redis-server knows this command
	must(t, s.Close())
}

func TestStore_MiniRedis_SaysWhy(t *testing.T) {
	old, path := t.TempDir(), os.Getenv("PATH")
	must(t, os.WriteFile(filepath.Join(old, "redis-server"), []byte("#!/bin/sh\necho Redis server v=6.0.16 sha=0\n"), 0o700))
	for _, c := range []struct{ path, dir, why string }{
		{t.TempDir(), t.TempDir(), "there is no redis-server on the PATH"},
		{old, t.TempDir(), old + "/redis-server is older than version 7"},
		{path, filepath.Join(t.TempDir(), strings.Repeat("deep", 30)), "the path of the folder is too long"},
	} {
		t.Setenv("PATH", c.path)
		said := ""
		s := &Store{Dir: c.dir, Say: func(line string) { said += line }}
		_, err := s.Dial(t.Context(), "", "")
		must(t, err, s.Close())
		if !strings.Contains(said, "a real Redis is faster and safer, but "+c.why) {
			t.Errorf("it says %q, want %q", said, c.why)
		}
	}
}

func TestStore_Dial_Errors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	kept, damaged, other := t.TempDir(), t.TempDir(), t.TempDir()
	must(t, os.WriteFile(file, nil, 0o600), os.Mkdir(filepath.Join(kept, "appendonlydir"), 0o700))
	for _, dir := range []string{damaged, other} {
		must(t, os.WriteFile(filepath.Join(dir, "appendonly.aof"), []byte("*2\r\n$3\r\nFOO\r\n$1\r\nx\r\n*3\r\n"), 0o600))
	}
	closed := &Store{Dir: t.TempDir()}
	must(t, closed.Close())
	try := func(s *Store, want string) {
		t.Helper()
		if _, err := s.Dial(t.Context(), "", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Dial gives %v, want %q", err, want)
		}
		must(t, s.Close())
	}
	said := func(string) {}
	try(closed, net.ErrClosed.Error())
	try(&Store{Dir: filepath.Join(file, FolderName)}, "none can keep its data in "+file)
	server := &Store{Dir: damaged, Say: said}
	_, err := server.Dial(t.Context(), "", "")
	must(t, server.Close())
	if err == nil || !strings.Contains(err.Error(), "redis-server has ended: "+damaged+"/redis.log says why") {
		t.Errorf("redis-server with a damaged file: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	try(&Store{Dir: other, Say: said}, other+"/appendonly.aof cannot be read: -ERR unknown command `FOO`")
	try(&Store{Dir: kept, Say: said}, "the jobs are those of a redis-server, but there is no redis-server on the PATH")
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
				s := &Store{Dir: dir, Say: func(string) {}}
				rdb := redis.NewClient(&redis.Options{Dialer: s.Dial, MaxRetries: 10})
				if err := errors.Join(rdb.Incr(t.Context(), "n").Err(), rdb.Close(), s.Close()); err != nil {
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
	_, rdb := open(t, t.TempDir())
	filled(t, rdb)
	info := ""
	for !strings.Contains(info, "aof_pending_bio_fsync:0") || !strings.Contains(info, "aof_buffer_length:0") {
		info = rdb.Info(t.Context()).Val() // until all is in the file
	}
	must(t, syscall.Kill(serverID(t, rdb), syscall.SIGKILL))
	wantFilled(t, rdb)
}

// serverID is the process of a redis-server.
func serverID(t *testing.T, rdb *redis.Client) (pid int) {
	_, after, _ := strings.Cut(rdb.Info(t.Context(), "server").Val(), "process_id:")
	_, err := fmt.Sscan(after, &pid)
	must(t, err)
	return pid
}

// A process whose folder was removed joins the server that other processes find.
func TestStore_RemovedFolder_JoinsTheNext(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		first, one := open(t, dir)
		must(t, one.Set(t.Context(), "key", "old", 0).Err(), os.RemoveAll(dir))
		_, other := open(t, dir)
		must(t, other.Set(t.Context(), "key", "new", 0).Err())
		if first.check(first.redis) {
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
		if address, err := os.ReadFile(s.path("address")); err == nil {
			host, _, _ := strings.Cut(string(address), " ")
			stranger := redis.NewClient(&redis.Options{Addr: host})
			defer stranger.Close()
			if err := stranger.Keys(t.Context(), "*").Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
				t.Errorf("without the password: %v", err)
			}
			if stat, err := os.Stat(s.path("address")); err != nil || stat.Mode().Perm() != 0o600 {
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
		must(t, os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "address"), fmt.Append(nil, trap.Addr(), " password"), 0o600))
		open(t, dir)
	})
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
	s.mu.Lock() // so that no save from before is under way
	_ = os.Remove(s.path("appendonly.aof"))
	s.mu.Unlock()
	for saved := 0; saved < 5; {
		s.check(s.redis)
		text, err := os.ReadFile(s.path("appendonly.aof"))
		if err != nil { // saving is not due yet
			continue
		}
		if n := strings.Count(string(text), "\r\njob\r\n"); n != jobs {
			t.Errorf("saved are %d jobs, want %d", n, jobs)
		}
		must(t, os.Remove(s.path("appendonly.aof")))
		saved++
	}
	close(stop)
	wg.Wait()
}

// A disk that is full is said once.
func TestMini_SavingThatFails_IsSaidOnce(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	said := ""
	s := &Store{Dir: t.TempDir(), Say: func(line string) { said += line }}
	_, err := s.Dial(t.Context(), "", "")
	must(t, err)
	defer s.Close()
	must(t, os.Mkdir(s.path("appendonly.aof.new"), 0o700))
	for s.redis.unsaved == nil {
		s.check(s.redis)
	}
	for range 1000 {
		s.check(s.redis)
	}
	if strings.Count(said, "is a directory") != 1 {
		t.Errorf("it says %q", said)
	}
}

// A process that is stopped keeps the store: the error of the others names it.
func TestStore_ServerThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	_, rdb := open(t, dir)
	pid := serverID(t, rdb)
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	defer syscall.Kill(pid, syscall.SIGCONT)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	other := &Store{Dir: dir}
	if _, err := other.Dial(ctx, "", ""); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d runs the Redis in %s, which does not answer", os.Getpid(), dir)) {
		t.Errorf("Dial gives %v", err)
	}
}

// The server ends with a process that is killed.
func TestStore_KilledProcess(t *testing.T) {
	if dir := os.Getenv("KILLED_STORE"); dir != "" {
		open(t, dir)
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

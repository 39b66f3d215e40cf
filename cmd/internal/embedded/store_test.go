package embedded

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

func init() {
	checkInterval = 5 * time.Millisecond
	answerTimeout = time.Hour
	logging.Disable()
}

// variants runs a test with the redis-server of this machine, and with none on the PATH.
func variants(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("redis-server", func(t *testing.T) { test(t, filepath.Join(redistest.Folder(t), FolderName)) })
	t.Run("miniredis", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		test(t, filepath.Join(redistest.Folder(t), FolderName))
	})
}

func open(t *testing.T, dir string) (*Store, *redis.Client) {
	t.Helper()
	s, err := Open(t.Context(), dir, func(line string) { t.Log(line) })
	must(t, err)
	rdb := connect(s)
	t.Cleanup(func() { _ = rdb.Close(); _ = s.Close() })
	return s, rdb
}

// connect returns a client that sends a command again until another process has taken over.
func connect(s *Store) *redis.Client {
	return redis.NewClient(redistest.Patient(&redis.Options{
		Network: "unix", Addr: s.Socket, MaxRetries: 100, MaxRetryBackoff: 50 * time.Millisecond,
	}))
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

// A key expires soon after its time, and not only with the next save.
func TestStore_Mini_ExpiresKeysSoon(t *testing.T) {
	defer func(d time.Duration) { checkInterval = d }(checkInterval)
	checkInterval = time.Hour
	t.Setenv("PATH", t.TempDir())
	s, rdb := open(t, filepath.Join(redistest.Folder(t), FolderName))
	must(t, rdb.Set(t.Context(), "key", "", 20*time.Millisecond).Err())
	proctest.Until(t, "end of the key", func() (bool, any) {
		left, err := rdb.Exists(t.Context(), "key").Result()
		must(t, err)
		return left == 0, left
	})
	must(t, s.Close())
}

// 2,000 keys, and a list of 10,000 jobs, are saved, too.
func TestStore_Close_KeepsManyJobs(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		s, rdb := open(t, dir)
		for i := range 10 {
			var keys, jobs []any
			for j := range 1000 {
				jobs = append(jobs, 1000*i+j)
				if j < 200 {
					keys = append(keys, fmt.Sprint("job:", 1000*i+j), "payload")
				}
			}
			must(t, rdb.MSet(t.Context(), keys...).Err(), rdb.RPush(t.Context(), "pending", jobs...).Err())
		}
		must(t, s.Close())
		_, rdb = open(t, dir)
		keys, jobs := rdb.DBSize(t.Context()).Val(), rdb.LLen(t.Context(), "pending").Val()
		if keys != 2001 || jobs != 10_000 {
			t.Errorf("it keeps %d keys and %d jobs, want 2,001 and 10,000", keys, jobs)
		}
	})
}

// The data of miniredis goes over to a redis-server that is installed later.
func TestStore_RedisServer_IsInstalledLater(t *testing.T) {
	dir, path := redistest.Folder(t), os.Getenv("PATH")
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

func TestOpen_MiniRedis_LogsWhy(t *testing.T) {
	old := t.TempDir()
	must(t, os.WriteFile(filepath.Join(old, "redis-server"), []byte("#!/bin/sh\necho Redis server v=6.0.16 sha=0\n"), 0o700))
	for path, why := range map[string]string{
		t.TempDir(): "there is no redis-server on the PATH",
		old:         old + "/redis-server is older than version 7",
	} {
		t.Setenv("PATH", path)
		logged := ""
		s, err := Open(t.Context(), redistest.Folder(t), func(line string) { logged += line })
		must(t, err, s.Close())
		if !strings.Contains(logged, "a real Redis is faster and safer, but "+why) {
			t.Errorf("it logs %q, want %q", logged, why)
		}
	}
}

func TestOpen_Errors(t *testing.T) {
	file := filepath.Join(redistest.Folder(t), "file")
	kept, damaged, other := redistest.Folder(t), redistest.Folder(t), redistest.Folder(t)
	must(t, os.WriteFile(file, nil, 0o600), os.Mkdir(filepath.Join(kept, "appendonlydir"), 0o700))
	for _, dir := range []string{damaged, other} {
		must(t, os.WriteFile(filepath.Join(dir, "appendonly.aof"), []byte("*2\r\n$3\r\nFOO\r\n$1\r\nx\r\n*3\r\n"), 0o600))
	}
	try := func(dir, want string) {
		t.Helper()
		if _, err := Open(t.Context(), dir, func(string) {}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open gives %v, want %q", err, want)
		}
	}
	try(strings.Repeat("deep/", 30), "is too long for a Unix socket")
	try(filepath.Join(file, FolderName), "none can run with its data in "+file)
	try(damaged, "redis-server has ended: see "+damaged+"/redis.log: exit status 1")
	t.Setenv("PATH", t.TempDir())
	try(other, other+"/appendonly.aof cannot be read: ERR unknown command `FOO`")
	try(kept, "the folder has the data of a redis-server, which miniredis cannot read, but there is no redis-server on the PATH")
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
func TestOpen_Concurrent_OneServer(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				s, err := Open(t.Context(), dir, func(string) {})
				if err != nil {
					t.Error(err)
					return
				}
				rdb := connect(s)
				if err := errors.Join(rdb.SAdd(t.Context(), "processes", i).Err(), rdb.Close(), s.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, rdb := open(t, dir)
		if n := rdb.SCard(t.Context(), "processes").Val(); n != 5 {
			t.Errorf("%d have written, want 5", n)
		}
	})
}

func TestStore_Crash_IsRestarted(t *testing.T) {
	_, rdb := open(t, redistest.Folder(t))
	filled(t, rdb)
	proctest.Until(t, "data in the file", func() (bool, any) {
		info := rdb.Info(t.Context()).Val()
		return strings.Contains(info, "aof_pending_bio_fsync:0") && strings.Contains(info, "aof_buffer_length:0"), info
	})
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
		proctest.Until(t, "new key", func() (bool, any) {
			got := one.Get(t.Context(), "key").Val()
			return got == "new", got
		})
		_ = first.Close() // returns that the folder was removed, unless that is logged already
		must(t, other.Ping(t.Context()).Err())
	})
}

func TestStore_OnlyItsUserConnects(t *testing.T) {
	variants(t, func(t *testing.T, dir string) {
		must(t, os.Mkdir(dir, 0o755))
		open(t, dir)
		if stat, err := os.Stat(dir); err != nil || stat.Mode().Perm() != 0o700 {
			t.Errorf("the folder is %v, %v; want mode 0700", stat.Mode(), err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, ".gitignore")); string(text) != "*\n" {
			t.Errorf(".gitignore is %q, %v", text, err)
		}
	})
}

// mini runs a miniredis without a Store.
func mini(t *testing.T, log func(string)) (s *Store, rdb *redis.Client) {
	dir := redistest.Folder(t)
	s = &Store{dir: dir, Socket: filepath.Join(dir, "redis.sock"), log: log}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.runMini(ctx) })
	rdb = connect(s)
	t.Cleanup(func() { _ = rdb.Close(); cancel(); wg.Wait() })
	return s, rdb
}

// What is saved is one moment: a job that moves meanwhile is in one place.
func TestMini_Save_IsOneMoment(t *testing.T) {
	s, rdb := mini(t, func(line string) { t.Error(line) })
	const jobs = 500
	for range jobs {
		must(t, rdb.RPush(t.Context(), "a", "job").Err())
	}
	file := filepath.Join(s.dir, "appendonly.aof")
	saved := func() int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "\r\njob\r\n")
	}
	// A save that began before the last push ends before this one.
	proctest.Until(t, "save of all jobs", func() (bool, any) { n := saved(); return n == jobs, n })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for from, to := "a", "z"; ; from, to = to, from {
				for range jobs {
					if rdb.LMove(ctx, from, to, "right", "left").Err(); ctx.Err() != nil {
						return
					}
				}
			}
		})
	}
	for range 5 {
		must(t, os.Remove(file))
		proctest.Until(t, "next save", func() (bool, any) { _, err := os.Stat(file); return err == nil, err })
		if n := saved(); n != jobs {
			t.Errorf("saved are %d jobs, want %d", n, jobs)
		}
	}
	cancel()
	wg.Wait()
}

// A process that is stopped keeps the store: the error of the others names it.
func TestStore_ServerThatDoesNotAnswer(t *testing.T) {
	dir := redistest.Folder(t)
	_, rdb := open(t, dir)
	pid := serverID(t, rdb)
	defer proctest.Freeze(t, pid)()
	defer func(before time.Duration) { answerTimeout = before }(answerTimeout)
	answerTimeout = 100 * time.Millisecond
	if _, err := Open(t.Context(), dir, func(string) {}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d runs the Redis in %s, which does not answer", os.Getpid(), dir)) {
		t.Errorf("Open gives %v", err)
	}
}

// A server of this process may take longer than answerTimeout to load its data.
func TestOpen_SlowLoad(t *testing.T) {
	bin := t.TempDir()
	server, err := exec.LookPath("redis-server")
	must(t, err)
	text := "#!/bin/sh\n[ \"$1\" = --version ] || sleep 3\nexec " + server + " \"$@\"\n"
	must(t, os.WriteFile(filepath.Join(bin, "redis-server"), []byte(text), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	defer func(before time.Duration) { answerTimeout = before }(answerTimeout)
	answerTimeout = 2 * time.Second
	s, err := Open(t.Context(), redistest.Folder(t), func(string) {})
	must(t, err)
	must(t, s.Close())
}

// An interrupt is no error of the server.
func TestOpen_Interrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if _, err := Open(ctx, redistest.Folder(t), func(string) {}); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "does not answer") {
		t.Errorf("Open gives %v", err)
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
		started := make(chan string, 1)
		s, err := Open(t.Context(), dir, func(line string) { started <- line })
		must(t, err)
		<-started // as soon as the killed process's server has ended
		must(t, s.Close())
	})
}

package config

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// commandsOf returns the commands of the code blocks of a section of docs/operating.md.
func commandsOf(t *testing.T, section string) (commands []string) {
	t.Helper()
	_, text, _ := strings.Cut(proctest.ReadFile(t, "../../../docs/operating.md"), section+"\n")
	for _, block := range strings.Split(text, "```sh\n")[1:] {
		block, rest, _ := strings.Cut(block, "```\n")
		commands = append(commands, strings.Split(strings.TrimSpace(block), "\n")...)
		if next := strings.Index(rest, "\n#"); next >= 0 && !strings.Contains(rest[:next], "```sh") {
			return commands
		}
	}
	return commands
}

// operator runs commands of the page, with a Redis at a Unix socket, and with folders of the test in
// place of those of the page.
type operator struct {
	t      *testing.T
	folder string // with .headgate, redis and backup
}

func (o operator) socket() string { return filepath.Join(o.folder, "redis.sock") }

func (o operator) command(line string) *exec.Cmd {
	line = strings.NewReplacer("/var/lib/redis", o.folder+"/redis", "/backup", o.folder+"/backup").Replace(line)
	line = strings.Replace(line, "redis-server ", "exec redis-server --port 0 --unixsocket "+o.socket()+" ", 1)
	line = strings.Replace(line, "redis-cli ", "redis-cli -s "+o.socket()+" ", 1)
	cmd := exec.Command("sh", "-ec", line)
	cmd.Dir = o.folder
	return cmd
}

func (o operator) run(line string) string {
	o.t.Helper()
	out, err := o.command(line).CombinedOutput()
	if err != nil {
		o.t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

// serve starts a redis-server with a command of the page, and waits until it answers.
func (o operator) serve(line string) redis.UniversalClient {
	o.t.Helper()
	rdb := redis.NewClient(redistest.Patient(&redis.Options{Network: "unix", Addr: o.socket(), MaxRetries: 100, MaxRetryBackoff: 50 * time.Millisecond}))
	o.t.Cleanup(func() { _ = rdb.Close() })
	if strings.Contains(line, "--daemonize yes") {
		o.run(line)
	} else if err := o.command(line).Start(); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { o.stop() })
	for rdb.Ping(o.t.Context()).Err() != nil {
	}
	return rdb
}

// stop ends the Redis if one runs, and waits until it has removed its socket.
func (o operator) stop() {
	_ = exec.Command("redis-cli", "-s", o.socket(), "shutdown").Run() // an error means that none runs
	for _, err := os.Stat(o.socket()); err == nil; _, err = os.Stat(o.socket()) {
		runtime.Gosched()
	}
}

// fill leaves two waiting jobs, the result of a third, and 48 of 50 permits of the day.
func fill(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	daily := throttle.Limit{Name: "daily", Kind: throttle.FixedWindow, Rate: throttle.PerDay(50)}
	limiter := throttle.New(rdb, throttle.Options{})
	must(t, limiter.Define(t.Context(), daily))
	for range 2 {
		_, err := limiter.Allow(t.Context(), "daily", "")
		must(t, err)
	}
	client := scheduler.NewClient(rdb)
	_, err := client.Enqueue(asynq.NewTask("done", nil), asynq.TaskID("done"), asynq.Queue("done"), asynq.Retention(time.Hour))
	must(t, err)
	for _, id := range []string{"one", "two"} {
		_, err := client.Enqueue(asynq.NewTask("wait", nil), asynq.TaskID(id))
		must(t, err)
	}
	rules := scheduler.Rules{RuleFor: func(context.Context, *asynq.Task) (scheduler.Rule, error) { return scheduler.Rule{}, nil }}
	server, err := scheduler.NewServer(rdb, rules, asynq.Config{Queues: map[string]int{"done": 1}, LogLevel: asynq.FatalLevel})
	must(t, err)
	ran := make(chan struct{})
	must(t, server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		defer close(ran)
		_, err := task.ResultWriter().Write([]byte("result"))
		return err
	})))
	<-ran
	server.Shutdown()
}

// wantFill compares what fill left.
func wantFill(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	waiting, err := inspector.ListPendingTasks("default")
	must(t, err)
	done, err := inspector.GetTaskInfo("done", "done")
	must(t, err)
	d, err := throttle.New(rdb, throttle.Options{}).AllowN(t.Context(), "daily", "", 0)
	must(t, err)
	if got := fmt.Sprint(len(waiting), " ", string(done.Result), " ", d.Remaining); got != "2 result 48" {
		t.Errorf("%s, want 2 waiting jobs, a result, and 48 permits", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestOperating_Move: a config with a Redis warns of what its embedded Redis holds, until the
// commands of docs/operating.md have moved it. Afterwards the jobs, the results and the used quota
// are there.
func TestOperating_Move(t *testing.T) {
	path := os.Getenv("PATH")
	for _, kind := range []string{"redis-server", "miniredis"} {
		t.Run(kind, func(t *testing.T) {
			o := operator{t, redistest.Folder(t)}
			must(t, os.Mkdir(filepath.Join(o.folder, "redis"), 0o700))
			if kind == "miniredis" {
				t.Setenv("PATH", t.TempDir())
			}
			beside := Redis{configFolder: o.folder}
			rdb, end, err := beside.ConnectOrCreate(t.Context(), func(string) {})
			must(t, err)
			fill(t, rdb)
			must(t, end())
			if text := beside.LeftBehind(t.Context()); text != "" {
				t.Errorf("the embedded Redis is in use: it says %s", text)
			}
			real, err := ParseRedisURL("unix://" + o.socket())
			must(t, err)
			real = real.Beside(beside)
			for range 2 { // the second time from the file
				text := real.LeftBehind(t.Context())
				for _, want := range []string{beside.Folder(), "2 unfinished jobs", "1 kept job", "used permits of 1 key"} {
					if !strings.Contains(text, want) {
						t.Errorf("it says %q, want %s", text, want)
					}
				}
			}
			t.Setenv("PATH", path)
			commands := commandsOf(t, "### A Redis of your own")
			if len(commands) != 2 {
				t.Fatalf("the commands are %q, want two", commands)
			}
			o.run(commands[0])
			wantFill(t, o.serve(commands[1]))
			if text := real.LeftBehind(t.Context()); text != "" {
				t.Errorf("after the move it says %s", text)
			}
		})
	}
}

// TestOperating_Backup: the commands of docs/operating.md restore a backup of a Redis with an
// append-only file.
func TestOperating_Backup(t *testing.T) {
	o := operator{t, redistest.Folder(t)}
	must(t, os.Mkdir(filepath.Join(o.folder, "redis"), 0o700))
	must(t, os.Mkdir(filepath.Join(o.folder, "backup"), 0o700))
	commands := commandsOf(t, "## Backup")
	if len(commands) != 6 {
		t.Fatalf("the commands are %q, want six", commands)
	}
	rdb := o.serve("redis-server --dir /var/lib/redis --appendonly yes")
	fill(t, rdb)
	o.run(commands[0])
	snapshot := filepath.Join(o.folder, "backup", "dump.rdb")
	must(t, os.Remove(snapshot))
	o.run(replicaBackup(t, rdb))
	if info, err := os.Stat(snapshot); err != nil || info.Size() == 0 {
		t.Fatalf("the user replica has made no backup: %v", err)
	}
	must(t, rdb.FlushAll(t.Context()).Err())
	o.stop()
	o.run(commands[1])
	o.run(commands[2])
	restored := o.serve(commands[3])
	o.run(commands[4])
	for !strings.Contains(o.run(commands[5]+" || true"), "aof_rewrite_in_progress:0") {
	}
	wantFill(t, restored)
	o.stop()
	wantFill(t, o.serve("redis-server --dir /var/lib/redis --appendonly yes"))
}

// replicaBackup defines the user replica as docs/operating.md does, and returns its command for a backup.
func replicaBackup(t *testing.T, rdb redis.UniversalClient) string {
	page := proctest.ReadFile(t, "../../../docs/operating.md")
	user := regexp.MustCompile(`(?m)^user (replica .*)$`).FindStringSubmatch(page)
	command := regexp.MustCompile("`(REDISCLI_AUTH=[^`]* --rdb [^`]*)`").FindStringSubmatch(page)
	if user == nil || command == nil {
		t.Fatal("docs/operating.md has no user replica, or no command for its backups")
	}
	words := []any{"ACL", "SETUSER"}
	for word := range strings.FieldsSeq(user[1]) {
		words = append(words, word)
	}
	must(t, rdb.Do(t.Context(), words...).Err())
	return command[1]
}

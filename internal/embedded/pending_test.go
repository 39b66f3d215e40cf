package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/asynqdb"
)

var pending, active = asynqdb.Key("q", asynqdb.Pending), asynqdb.Key("q", asynqdb.Active)

// A list of pending jobs answers as any other list, from clients and from scripts, after a restart too.
func TestMini_PendingJobs_AreAList(t *testing.T) {
	folder, runs := t.TempDir(), 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		file := filepath.Join(folder, strconv.Itoa(runs))
		m := loaded(r, file)
		defer func() { _ = m.stop(false) }()
		plain := miniredis.NewMiniRedis()
		defer plain.Close()
		conn, err := plain.Dial()
		if err != nil {
			r.Fatal(err)
		}
		_ = conn.Close()
		var reply bytes.Buffer
		peer := miniserver.NewPeer(bufio.NewWriter(&reply))
		want := func(command ...string) string {
			plain.Server().Dispatch(peer, command)
			peer.Flush()
			value, err := miniserver.ParseReply(bufio.NewReader(&reply))
			return fmt.Sprint(value, err)
		}
		value, number := rapid.StringMatching(`[ab]`), rapid.IntRange(-7, 7)
		for range rapid.IntRange(1, 30).Draw(r, "commands") {
			name := rapid.SampledFrom([]string{"LPUSH", "RPUSH", "LPUSH", "RPUSH", "LPOP", "RPOP", "RPOPLPUSH", "LREM", "LINDEX", "LRANGE", "LTRIM", "LLEN", "restart"}).Draw(r, "name")
			command := []string{name, pending}
			n := func() string { return strconv.Itoa(number.Draw(r, "n")) }
			switch name {
			case "LPUSH", "RPUSH":
				command = append(command, rapid.SliceOfN(value, 1, 3).Draw(r, "values")...)
			case "LPOP", "RPOP":
				command = append(command, strconv.Itoa(rapid.IntRange(1, 3).Draw(r, "count")))
			case "RPOPLPUSH":
				command = append(command, active)
			case "LREM":
				command = append(command, n(), value.Draw(r, "value"))
			case "LINDEX":
				command = append(command, n())
			case "LRANGE", "LTRIM":
				command = append(command, n(), n())
			case "restart":
				if err := m.stop(true); err != nil {
					r.Fatal(err)
				}
				m = loaded(r, file)
				command[0] = "LLEN"
			}
			run := command
			if rapid.Bool().Draw(r, "by a script") {
				run = slices.Concat([]string{"EVAL", "return redis.call(unpack(ARGV))", "0"}, command)
			}
			for _, command := range [][]string{run, {"LRANGE", pending, "0", "-1"}, {"LRANGE", active, "0", "-1"}} {
				value, err := m.do(command...)
				if got, want := fmt.Sprint(value, err), want(command...); got != want {
					r.Fatalf("%q gives %s, want %s", command, got, want)
				}
			}
		}
	})
}

func loaded(r *rapid.T, file string) *mini {
	m, err := newMini()
	if err != nil {
		r.Fatal(err)
	}
	m.file = file
	if err := m.load(); err != nil {
		r.Fatal(err)
	}
	return m
}

// A job costs as much in a long queue as in a short one.
func TestMini_PendingJobs_AreNotCopied(t *testing.T) {
	m, err := newMini()
	must(t, err)
	defer m.stop(false)
	push := func(jobs int) (allocated uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range jobs {
			_, err := m.do("LPUSH", pending, "job")
			must(t, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	push(20_000)
	if n := push(500); n > 10<<20 {
		t.Errorf("500 jobs allocate %d MiB in a queue of 20,000", n>>20)
	}
}

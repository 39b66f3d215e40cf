package embedded

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Others can neither reach the socket nor read what is beside it.
func TestOnlyItsUserConnects(t *testing.T) {
	f := Folder(t.TempDir())
	if err := os.Chmod(string(f), 0o755); err != nil { // as it is in some homes
		t.Fatal(err)
	}
	s := start(t, f)
	if dir := filepath.Dir(s.Addr()); dir != string(f) {
		t.Errorf("the socket is in %s, want %s", dir, f)
	}
	wantPrivateSocket(t, s)
}

// The path of a socket is at most a hundred bytes long, that of a home can be longer.
func TestASocketInADeepFolder(t *testing.T) {
	f := Folder(filepath.Join(t.TempDir(), strings.Repeat("deep", 30)))
	s := start(t, f)
	wantPrivateSocket(t, s)
	if addr, ok := f.Find(t.Context()); addr != s.Addr() || !ok {
		t.Errorf("Find gives %q, %v; want %q", addr, ok, s.Addr())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(s.Addr())); !os.IsNotExist(err) {
		t.Errorf("the socket's folder after Close: %v", err)
	}
}

func wantPrivateSocket(t *testing.T, s *Server) {
	t.Helper()
	if stat, err := os.Stat(s.Addr()); err != nil || stat.Mode().Type() != fs.ModeSocket {
		t.Errorf("the address is %v, %v; want a socket", stat, err)
	}
	if stat, err := os.Stat(filepath.Dir(s.Addr())); err != nil || stat.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v; want mode 0700", stat, err)
	}
	if err := client(t, s).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Error(err)
	}
}

// say sends text to the server and gives all that it answers until it hangs up.
func say(t *testing.T, s *Server, text string) string {
	t.Helper()
	conn, err := Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

func TestMalformedInputEndsOnlyItsConnection(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	for _, text := range []string{
		"*0\r\n", "*-1\r\n", "*\r\n", "*1\n", "*2147483648\r\n", "*99999999999999999999\r\n",
		"*1\r\n$-1\r\n", "*1\r\n$99999999999\r\n", "*1\r\n$9223372036854775807\r\n", "*1\r\n*1\r\n",
		"*1\r\n$4\r\nPINGPONG\r\n", "*+1\r\n", "\r\n\r\n", "PING\r\n", "GET / HTTP/1.1\r\n", "\x16\x03\x01\x00\n",
		fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n", maxBytes), strings.Repeat("9", 4096),
	} {
		if got := say(t, s, text); !strings.HasPrefix(got, "-ERR Protocol error: ") {
			t.Errorf("the answer to %.40q is %q", text, got)
		}
	}
	if err := client(t, s).Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}

// What miniredis fails at costs who sent it the connection; the others go on.
func TestAFailingCommandEndsOnlyItsConnection(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	others := client(t, s)
	if err := others.SAdd(t.Context(), "set", "a").Err(); err != nil {
		t.Fatal(err)
	}
	const least = "-9223372036854775808"
	got := say(t, s, fmt.Sprintf("*3\r\n$5\r\nSSCAN\r\n$3\r\nset\r\n$%d\r\n%s\r\n", len(least), least))
	if !strings.HasPrefix(got, `-ERR the embedded Redis failed at "SSCAN": runtime error: `) {
		t.Errorf("the answer is %q", got)
	}
	if n, err := others.SCard(t.Context(), "set").Result(); n != 1 || err != nil {
		t.Errorf("the others get %d, %v", n, err)
	}
}

// One command runs at a time, so one that waits would hold up all.
func TestCommandsThatWaitAreRefused(t *testing.T) {
	rdb := client(t, start(t, Folder(t.TempDir())))
	for _, err := range []error{
		rdb.BLPop(t.Context(), 0, "list").Err(),
		rdb.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"stream", "0"}, Block: 0}).Err(),
	} {
		if err == nil || !strings.Contains(err.Error(), "has no commands that wait") {
			t.Errorf("got %v", err)
		}
	}
	err := rdb.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"stream", "0"}, Block: -1}).Err()
	if !errors.Is(err, redis.Nil) {
		t.Errorf("XREAD without BLOCK: %v", err)
	}
}

// Commands that were sent are answered although the server is closed: who sent them would
// send all of them again to the next one.
func TestCloseAnswersWhatWasSent(t *testing.T) {
	const commands = 1000
	for range 20 {
		s := start(t, Folder(t.TempDir()))
		conn, err := Dial(t.Context(), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, strings.Repeat("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n", commands)); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		answers, err := io.ReadAll(conn)
		if n := strings.Count(string(answers), "\r\n"); n != commands || err != nil {
			t.Fatalf("%d answers, %v; want %d", n, err, commands)
		}
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
	}
}

// A client that never pauses does not keep the server from its end.
func TestCloseEndsABusyClient(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	conn, err := Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		answer := make([]byte, 100)
		for err := error(nil); err == nil; {
			_, _ = io.WriteString(conn, "*1\r\n$4\r\nPING\r\n")
			_, err = conn.Read(answer)
		}
	}()
	start := time.Now()
	if err := s.Close(); err != nil || time.Since(start) > 10*closeLate {
		t.Errorf("Close takes %s, %v", time.Since(start), err)
	}
}

// A client that is gone hears of nothing any more.
func TestASubscriptionEndsWithItsConnection(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	rdb := client(t, s)
	sub, pattern := rdb.Subscribe(t.Context(), "news"), rdb.PSubscribe(t.Context(), "n*")
	for _, s := range []*redis.PubSub{sub, pattern} {
		if _, err := s.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := rdb.Publish(t.Context(), "news", "hello").Result(); n != 2 || err != nil {
		t.Errorf("%d hear it, %v; want 2", n, err)
	}
	sub.Close()
	pattern.Close()
	for rdb.PubSubNumSub(t.Context(), "news").Val()["news"]+rdb.PubSubNumPat(t.Context()).Val() > 0 {
		continue // until the server has seen that they are gone
	}
	if n, err := rdb.Publish(t.Context(), "news", "hello").Result(); n != 0 || err != nil {
		t.Errorf("%d hear it, %v; want none", n, err)
	}
}

// A client that reads nothing, such as a stopped process, loses its connection, and holds
// up nobody for long.
func TestAClientThatReadsNothing(t *testing.T) {
	s := start(t, Folder(t.TempDir()))
	rdb, large := client(t, s), strings.Repeat("x", 1<<20)
	if err := rdb.Set(t.Context(), "large", large, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, asks := range []string{
		"*2\r\n$9\r\nSUBSCRIBE\r\n$4\r\nnews\r\n",
		strings.Repeat("*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n", 20),
	} {
		conn, err := Dial(t.Context(), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, asks); err != nil {
			t.Fatal(err)
		}
		for strings.Contains(asks, "SUBSCRIBE") && rdb.PubSubNumSub(t.Context(), "news").Val()["news"] == 0 {
			continue // until it is heard
		}
		for range 20 {
			if err := rdb.Publish(t.Context(), "news", large).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

package embedded

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
)

// mini is a miniredis within this process. It saves to a file in the form of Redis's append-only
// file, which a redis-server that is installed later reads.
type mini struct {
	*miniredis.Miniredis
	do       func(command ...string) (any, error)
	file     string
	listener net.Listener
	ended    chan struct{}
	dumped   bytes.Buffer
	over     atomic.Bool // whether clients get no more replies
}

func newMini() (*mini, error) {
	m := &mini{Miniredis: miniredis.NewMiniRedis(), ended: make(chan struct{})}
	conn, err := m.Dial() // which makes the server
	if err != nil {
		return nil, err
	}
	_ = conn.Close()
	m.do = m.session(&miniserver.Peer{})
	m.Server().SetPreHook(m.reverse)
	go m.expire()
	return m, m.Server().Register(dumpCommand, m.dump)
}

// Memory starts a Redis for this process alone, which keeps nothing on disk.
func Memory() (dial func(ctx context.Context, network, addr string) (net.Conn, error), stop func(), err error) {
	m, err := newMini()
	if err != nil {
		return nil, nil, err
	}
	return func(context.Context, string, string) (net.Conn, error) { return m.Dial() }, func() { _ = m.stop(false) }, nil
}

func startMini(dir string) (server, error) {
	m, err := newMini()
	if err != nil {
		return nil, err
	}
	m.file = filepath.Join(dir, "appendonly.aof")
	if err = m.load(); err == nil {
		err = m.listen(filepath.Join(dir, addressFile))
	}
	if err != nil {
		_ = m.stop(false)
		return nil, err
	}
	return m, nil
}

// listen lets clients connect who know the password, which is in the file.
func (m *mini) listen(file string) (err error) {
	if m.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	password := rand.Text()
	m.RequireAuth(password)
	if _, err := m.do("AUTH", password); err != nil {
		return err
	}
	go func() {
		for conn, err := m.listener.Accept(); err == nil; conn, err = m.listener.Accept() {
			m.Server().ServeConn(client{conn, m})
		}
	}()
	return replace(file, fmt.Append(nil, m.listener.Addr(), " ", password))
}

// client is a connection to a client. A client that reads nothing, such as a stopped process,
// loses it after a second: miniredis holds its lock while it writes to subscribers.
type client struct {
	net.Conn
	m *mini
}

func (c client) Write(p []byte) (n int, err error) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if c.m.over.Load() {
		err = net.ErrClosed
	} else {
		n, err = c.Conn.Write(p)
	}
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// expire lets keys expire, in a tenth of the time if there are many. By itself miniredis would
// look at all keys for each command.
func (m *mini) expire() {
	for last, took := time.Now(), time.Duration(0); ; took = time.Since(last) {
		select {
		case <-m.ended:
			return
		case <-time.After(max(50*time.Millisecond, min(10*took, 500*time.Millisecond))):
			passed := time.Since(last)
			last = last.Add(passed)
			m.FastForward(passed)
		}
	}
}

func (m *mini) failed() error { return nil }

func (m *mini) stop(keep bool) (err error) {
	if m.listener != nil {
		_ = m.listener.Close()
	}
	if keep {
		_, err = m.do("EVAL", "return redis.call('"+dumpCommand+"', 'last')", "0")
		err = errors.Join(err, m.write())
	}
	close(m.ended)
	m.Close()
	return err
}

func (m *mini) save() error {
	if _, err := m.do("EVAL", "return redis.call('"+dumpCommand+"')", "0"); err != nil {
		return err
	}
	return m.write()
}

func (m *mini) write() error { return replace(m.file, m.dumped.Bytes()) }

// replace writes a file in one step: a crash leaves the old one or the new one.
func replace(path string, data []byte) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name())) // half a file takes room on a full disk
	}
	return os.Rename(file.Name(), path)
}

// session gives a function that runs commands within this process, in the context of a client.
func (m *mini) session(of *miniserver.Peer) func(command ...string) (any, error) {
	var reply bytes.Buffer
	peer, in := miniserver.NewPeer(bufio.NewWriter(&reply)), bufio.NewReader(&reply)
	peer.Ctx, peer.ClientName = of.Ctx, of.ClientName
	return func(command ...string) (any, error) {
		m.Server().Dispatch(peer, command)
		peer.Flush()
		return miniserver.ParseReply(in)
	}
}

const dumpCommand = "HEADGATE.DUMP"

// commands are those that read a key of a type, each behind the one that writes it.
var commands = map[string][]string{
	"string": {"SET", "GET"}, "list": {"RPUSH", "LRANGE", "0", "-1"}, "set": {"SADD", "SMEMBERS"},
	"hash": {"HSET", "HGETALL"}, "zset": {"ZADD", "ZRANGE", "0", "-1", "WITHSCORES"}, "stream": {"XADD", "XRANGE", "-", "+"},
}

// dump is a command of miniredis which notes the commands that make the data. Only a script
// calls it, because nothing else runs during a script. After the last dump clients get no reply
// to what is not in it.
func (m *mini) dump(script *miniserver.Peer, _ string, last []string) {
	do := m.session(&miniserver.Peer{Ctx: script.Ctx, ClientName: raw})
	m.dumped.Reset()
	keys, _ := do("KEYS", "*")
	for _, key := range flat(keys) {
		kind, _ := do("TYPE", key)
		c := slices.Clone(commands[fmt.Sprint(kind)])
		if isPending(key) {
			c[0] = "LPUSH"
		}
		value, _ := do(append([]string{c[1], key}, c[2:]...)...)
		rows, ok := value.([]any)
		if !ok || c[0] != "XADD" {
			rows = []any{value}
		}
		for _, row := range rows {
			words := flat(row)
			for i := 1; i < len(words) && c[0] == "ZADD"; i += 2 { // it has the score first
				words[i-1], words[i] = words[i], words[i-1]
			}
			m.note(append([]string{c[0], key}, words...))
		}
		if at, _ := do("PEXPIRETIME", key); fmt.Sprint(at) != "-1" {
			m.note([]string{"PEXPIREAT", key, fmt.Sprint(at)})
		}
	}
	m.over.Store(len(last) > 0)
	script.WriteOK()
}

func (m *mini) note(command []string) {
	m.dumped.WriteString("*" + strconv.Itoa(len(command)) + "\r\n")
	for _, word := range command {
		m.dumped.WriteString("$" + strconv.Itoa(len(word)) + "\r\n" + word + "\r\n")
	}
}

func flat(reply any) (words []string) {
	items, ok := reply.([]any)
	if !ok {
		return []string{fmt.Sprint(reply)}
	}
	for _, item := range items {
		words = append(words, flat(item)...)
	}
	return words
}

// load carries out the commands of the file.
func (m *mini) load() error {
	file, err := os.Open(m.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	for in := bufio.NewReader(file); ; {
		command, err := miniserver.ParseReply(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			_, err = m.do(flat(command)...)
		}
		if err != nil {
			return fmt.Errorf("the jobs in %s cannot be read: %w; move the file away to start without them", m.file, err)
		}
	}
}

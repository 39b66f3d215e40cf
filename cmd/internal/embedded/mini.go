package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// minis has the Stores of this process whose data is in its memory.
var minis sync.Map

// SaveAll closes the Stores whose data is in the memory of this process, before the process ends
// without the code that uses them. A redis-server saves its data itself.
func SaveAll() {
	minis.Range(func(s, _ any) bool {
		_ = s.(*Store).Close()
		return true
	})
}

// runMini runs a miniredis within this process until ctx ends. It saves the data as an append-only
// file, because a redis-server can load such a file later.
func (s *Store) runMini(ctx context.Context) error {
	minis.Store(s, nil)
	defer minis.Delete(s)
	debug.SetGCPercent(400) // miniredis makes much garbage; 400 halves its CPU time
	m, file := miniredis.NewMiniRedis(), filepath.Join(s.dir, "appendonly.aof")
	defer m.Close()
	// A lifetime of 1 ns: each command gets a new connection, because Server.Close closes old ones before the last save.
	rdb := redis.NewClient(&redis.Options{ConnMaxLifetime: 1, ReadTimeout: -1, Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	defer rdb.Close()
	if err := load(rdb, file); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false) // because the path can be the socket of another server by then
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			m.Server().ServeConn(conn)
		}
	})
	expired, due, pause, failing := time.Now(), time.Now(), time.Duration(0), false
	for ctx.Err() == nil {
		time.Sleep(pause)
		now := time.Now()
		m.FastForward(now.Sub(expired)) // miniredis expires no key by itself; the call waits while a script runs
		// A server with a backlog fetches new jobs only after a key of some milliseconds expires, so the pause is short.
		expired, pause = now, min(10*time.Millisecond+20*time.Since(now), time.Second)
		if now.After(due) {
			err := save(rdb, file)
			if err != nil && !failing {
				s.log(fmt.Sprintf("saving the jobs in %s: %v", s.dir, err))
			}
			failing = err != nil
			due = now.Add(max(checkInterval, 3*time.Since(now))) // saves take at most a third of the time
		}
	}
	_ = listener.Close()
	accepting.Wait()
	m.CtxCancel() // ends blocking commands
	m.Server().Close()
	if err := save(rdb, file); err != nil {
		return fmt.Errorf("cannot save the jobs in %s; changes since the last save are lost: %w", s.dir, err)
	}
	return nil
}

// save replaces the file by one with all data. If the process dies, one of the two is left, whole.
func save(rdb *redis.Client, path string) error {
	commands, err := rdb.Eval(context.Background(), dump, nil).Slice()
	var text bytes.Buffer
	for _, command := range commands {
		fmt.Fprintf(&text, "*%d\r\n", len(command.([]any)))
		for _, word := range command.([]any) {
			fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word.(string)), word)
		}
	}
	if err == nil {
		err = os.WriteFile(path+".new", text.Bytes(), 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	return err
}

// dump is a script that returns commands. These commands restore all data of the moment.
const dump = `
local all = {}
local function add(command, words)
	for _, word in ipairs(words) do command[#command+1] = word end
	all[#all+1] = command
end
local types = {
	string = {'SET', 'MGET'}, list = {'RPUSH', 'LRANGE', 0, -1}, set = {'SADD', 'SMEMBERS'}, hash = {'HSET', 'HGETALL'},
	zset = {'ZADD', 'ZRANGE', 0, -1, 'WITHSCORES'}, stream = {'XADD', 'XRANGE', '-', '+'},
}
for _, key in ipairs(redis.call('KEYS', '*')) do
	local command = types[redis.call('TYPE', key).ok]
	local words = redis.call(command[2], key, unpack(command, 3))
	for i = 2, command[1] == 'ZADD' and #words or 0, 2 do words[i-1], words[i] = words[i], words[i-1] end
	if command[1] ~= 'XADD' then add({command[1], key}, words) end
	for _, entry in ipairs(command[1] == 'XADD' and words or {}) do add({'XADD', key, entry[1]}, entry[2]) end
	local at = redis.call('PEXPIRETIME', key)
	if at ~= -1 then add({'PEXPIREAT', key}, {string.format('%d', at)}) end
end
return all`

// load executes the commands in the file of save. If there is no file, load does nothing.
func load(rdb *redis.Client, path string) error {
	ctx, conn := context.Background(), rdb.Conn() // a connection for each command takes twice as long
	defer conn.Close()
	text, err := os.ReadFile(path)
	err = errors.Join(conn.Ping(ctx).Err(), err) // the first command starts miniredis
	for in := bufio.NewReader(bytes.NewReader(text)); err == nil; {
		var command any
		if command, err = miniserver.ParseReply(in); err == nil {
			err = conn.Do(ctx, command.([]any)...).Err()
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s cannot be read: %w; move the file away to start without its jobs", path, err)
}

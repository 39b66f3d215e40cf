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

// runMini runs a miniredis within this process. It saves to a file in the form of Redis's
// append-only file, which a redis-server that is installed later reads.
func (s *Store) runMini(ctx context.Context) error {
	debug.SetGCPercent(400) // miniredis makes much garbage: this halves the CPU time to enqueue 60,000 jobs
	m, file := miniredis.NewMiniRedis(), filepath.Join(s.dir, "appendonly.aof")
	if err := load(m, file); err != nil {
		return err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Socket, Net: "unix"})
	if err != nil {
		return err
	}
	listener.SetUnlinkOnClose(false) // if the folder was removed, another server's socket may be there
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
			m.Server().ServeConn(conn)
		}
	})
	last, due := time.Now(), time.Now()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			_ = listener.Close()
			accepting.Wait()
			m.CtxCancel() // ends the commands that block
			m.Server().Close()
			defer m.Close()
			if err := save(m, file); err != nil { // after the last reply
				return fmt.Errorf("the jobs in %s are those that were saved last: %w", s.dir, err)
			}
			return nil
		case <-time.After(tick):
		}
		now := time.Now()
		m.FastForward(now.Sub(last)) // by itself miniredis would look at all keys for each command
		if last = now; now.After(due) {
			err := save(m, file)
			if err != nil && !failing {
				s.log(fmt.Sprintf("saving the jobs in %s: %v", s.dir, err))
			}
			failing = err != nil
			due = now.Add(10 * time.Since(now)) // so saving takes a tenth of the time if there is much to save
		}
	}
}

func client(m *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{ReadTimeout: -1, Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
}

// save replaces the file: a crash leaves the old one or the new one.
func save(m *miniredis.Miniredis, path string) error {
	rdb := client(m)
	defer rdb.Close()
	text, err := rdb.Eval(context.Background(), dump, nil).Text()
	if err == nil {
		err = os.WriteFile(path+".new", []byte(text), 0o600)
	}
	if err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// dump returns the commands that make the data. A script sees one moment.
const dump = `
local all = {}
local function add(...)
	local command = {}
	for _, words in ipairs({...}) do
		for _, word in ipairs(words) do command[#command+1] = '$' .. #word .. '\r\n' .. word .. '\r\n' end
	end
	all[#all+1] = '*' .. #command .. '\r\n' .. table.concat(command)
end
local types = {
	string = {'SET', 'GET'}, list = {'RPUSH', 'LRANGE', 0, -1}, set = {'SADD', 'SMEMBERS'}, hash = {'HSET', 'HGETALL'},
	zset = {'ZADD', 'ZRANGE', 0, -1, 'WITHSCORES'}, stream = {'XADD', 'XRANGE', '-', '+'},
}
for _, key in ipairs(redis.call('KEYS', '*')) do
	local command = types[redis.call('TYPE', key).ok]
	local words = redis.call(command[2], key, unpack(command, 3))
	if command[1] == 'XADD' then
		for _, entry in ipairs(words) do add({'XADD', key, entry[1]}, entry[2]) end
	else
		if command[1] == 'SET' then words = {words} end
		for i = 2, command[1] == 'ZADD' and #words or 0, 2 do words[i-1], words[i] = words[i], words[i-1] end
		add({command[1], key}, words)
	end
	local at = redis.call('PEXPIRETIME', key)
	if at ~= -1 then add({'PEXPIREAT', key, string.format('%d', at)}) end
end
return table.concat(all)`

// load executes the commands of a file.
func load(m *miniredis.Miniredis, path string) error {
	rdb, ctx := client(m), context.Background()
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil { // also starts it, without a port
		return err
	}
	text, err := os.ReadFile(path)
	for in := bufio.NewReader(bytes.NewReader(text)); err == nil; {
		var command any
		if command, err = miniserver.ParseReply(in); err == nil {
			err = rdb.Do(ctx, command.([]any)...).Err()
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s cannot be read: %w; move it away to start without its jobs", path, err)
}

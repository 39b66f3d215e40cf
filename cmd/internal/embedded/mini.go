package embedded

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	miniserver "github.com/alicebob/miniredis/v2/server"
)

// startMini starts a miniredis within this process. It saves to a file in the form of Redis's
// append-only file, which a redis-server that is installed later reads.
func startMini(dir string) (*server, error) {
	m, file, password := miniredis.NewMiniRedis(), filepath.Join(dir, "appendonly.aof"), rand.Text()
	debug.SetGCPercent(400) // miniredis makes much garbage: this halves the CPU time to enqueue 60,000 jobs
	m.RequireAuth(password)
	if err := m.Start(); err != nil { // on loopback
		return new(server), err
	}
	var reply bytes.Buffer
	inner, peer := m.Server(), miniserver.NewPeer(bufio.NewWriter(&reply))
	do := func(command ...string) (string, error) {
		reply.Reset()
		inner.Dispatch(peer, command)
		peer.Flush()
		if reply.Bytes()[0] == '-' {
			return "", errors.New(reply.String())
		}
		return reply.String(), nil
	}
	save := func() error {
		reply, err := do("EVAL", commands, "0")
		if err != nil {
			return err
		}
		_, text, _ := strings.Cut(reply, "\r\n") // behind the number of commands
		return replace(file, text)
	}
	aged, due := time.Now(), time.Now()
	var unsaved error // of the last save
	tend := func() error {
		start := time.Now()
		m.FastForward(start.Sub(aged)) // by itself miniredis would look at all keys for each command
		if aged = start; start.After(due) {
			unsaved = save()
			due = start.Add(10 * time.Since(start)) // so saving takes a tenth of the time if there is much to save
		}
		return unsaved
	}
	stop := func() error {
		m.CtxCancel() // ends the commands that block
		inner.Close()
		defer m.Close()
		return save() // after the last reply
	}
	_, err := do("AUTH", password)
	if err == nil {
		err = load(file, do)
	}
	if err == nil {
		err = replace(filepath.Join(dir, "address"), m.Addr()+" "+password)
	}
	return &server{tend: tend, stop: stop}, err
}

// commands is a script, and therefore sees one moment. It returns the commands that make the data.
const commands = `
local all = {}
local function add(command, words)
	for _, word in ipairs(words) do command[#command+1] = word end
	all[#all+1] = command
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
	if at ~= -1 then add({'PEXPIREAT', key, string.format('%d', at)}, {}) end
end
return all`

// replace writes a file in one step: a crash leaves the old one or the new one.
func replace(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// load carries out the commands of a file.
func load(path string, do func(...string) (string, error)) error {
	text, err := os.ReadFile(path)
	for in := bufio.NewReader(bytes.NewReader(text)); err == nil; {
		var command any
		if command, err = miniserver.ParseReply(in); err == nil {
			var words []string
			for _, word := range command.([]any) {
				words = append(words, fmt.Sprint(word))
			}
			_, err = do(words...)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s cannot be read: %w; move it away to start without its jobs", path, err)
}

package redistest

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// machine runs the scripts of a miniredis in one Lua state. miniredis itself makes a new state for
// each run, which is slow. Only the first run of each script is miniredis's own.
type machine struct {
	redis *miniredis.Miniredis
	state *lua.LState
	known sync.Map // SHA1 → *lua.FunctionProto

	peer   *server.Peer // sends the commands of scripts
	answer bytes.Buffer // the answer to the last command
	reader *bufio.Reader
}

// compiled has the scripts of all machines: SHA1 → *lua.FunctionProto.
var compiled sync.Map

func newMachine(m *miniredis.Miniredis) *machine {
	x := &machine{redis: m, state: lua.NewState()}
	x.peer = server.NewPeer(bufio.NewWriter(&x.answer))
	x.peer.Ctx = inScript()
	x.reader = bufio.NewReader(&x.answer)
	x.state.SetGlobal("redis", x.state.SetFuncs(x.state.NewTable(), map[string]lua.LGFunction{
		"call":         func(l *lua.LState) int { return x.command(l, false) },
		"pcall":        func(l *lua.LState) int { return x.command(l, true) },
		"status_reply": func(l *lua.LState) int { l.Push(table(l, "ok", l.CheckString(1))); return 1 },
		"error_reply":  func(l *lua.LState) int { l.Push(table(l, "err", l.CheckString(1))); return 1 },
	}))
	if err := x.state.DoString(noGlobals); err != nil {
		panic(err)
	}
	return x
}

const noGlobals = `
local function refuse(_, name) error('a script names the global variable ' .. tostring(name), 2) end
setmetatable(_G, { __index = refuse, __newindex = refuse })
`

// inScript returns the context of commands that scripts call, which miniredis does not export.
var inScript = sync.OnceValue(func() (mark any) {
	m := miniredis.NewMiniRedis()
	defer m.Close()
	client, err := m.Dial()
	if err != nil {
		panic(err)
	}
	defer client.Close()
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "PING" {
			mark = c.Ctx
		}
		return false
	})
	m.Server().Dispatch(server.NewPeer(bufio.NewWriter(io.Discard)), []string{"EVAL", "return redis.call('PING')", "0"})
	return mark
})

// InScript reports whether a hook of [Before] sees a command of a script. While a script runs,
// miniredis is locked, so the hook must not wait.
func InScript(c *server.Peer) bool { return c.Ctx == inScript() }

// Before calls hook before each command. The hook reports whether it has answered the command. The
// hook may be nil.
func Before(m *miniredis.Miniredis, hook server.Hook) {
	own := newMachine(m).hook
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		return hook != nil && hook(c, cmd, args...) || own(c, cmd, args...)
	})
}

// hook runs known scripts.
func (x *machine) hook(c *server.Peer, cmd string, args ...string) bool {
	switch {
	case cmd == "SCRIPT": // FLUSH, perhaps
		x.known.Clear()
	case cmd == "EVAL" && len(args) > 0:
		x.learn(args[0])
	case cmd == "EVALSHA" && len(args) > 1:
		if script, ok := x.known.Load(args[0]); ok {
			x.run(c, script.(*lua.FunctionProto), args[1], args[2:])
			return true
		}
	}
	return false
}

func (x *machine) learn(text string) {
	name := sha(text)
	script, ok := compiled.Load(name)
	if !ok {
		chunk, err := parse.Parse(strings.NewReader(text), "<string>")
		if err != nil {
			return
		}
		proto, err := lua.Compile(chunk, "")
		if err != nil {
			return
		}
		script, _ = compiled.LoadOrStore(name, proto)
	}
	x.known.Store(name, script)
}

func sha(script any) string { return fmt.Sprintf("%x", sha1.Sum([]byte(script.(string)))) }

func (x *machine) run(c *server.Peer, script *lua.FunctionProto, keys string, args []string) {
	x.redis.Lock()
	defer x.redis.Unlock()
	defer x.state.SetTop(0)
	n, err := strconv.Atoi(keys)
	if err != nil || n < 0 || n > len(args) {
		c.WriteError("ERR Number of keys can't be greater than number of args")
		return
	}
	x.state.G.Global.RawSetString("KEYS", list(x.state, args[:n]))
	x.state.G.Global.RawSetString("ARGV", list(x.state, args[n:]))
	x.state.Push(x.state.NewFunctionFromProto(script))
	if err := x.state.PCall(0, 1, nil); err != nil {
		c.WriteError("ERR Error compiling script (new function): " + err.Error())
		return
	}
	reply(c, x.state.Get(1))
}

// command runs a command of a script. A pcall returns the error of a command. Without pcall an
// error ends the script.
func (x *machine) command(l *lua.LState, pcall bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		args[i] = l.CheckString(i + 1)
	}
	x.answer.Reset()
	x.redis.Server().Dispatch(x.peer, args)
	x.peer.Flush()
	x.reader.Reset(&x.answer)
	answer, err := server.ParseReply(x.reader)
	switch {
	case err == nil:
		l.Push(value(l, answer))
	case pcall:
		l.Push(table(l, "err", err.Error()))
	default:
		l.Error(lua.LString(err.Error()), 1)
	}
	return 1
}

// value converts a reply to Lua.
func value(l *lua.LState, answer any) lua.LValue {
	switch v := answer.(type) {
	case int:
		return lua.LNumber(v)
	case string:
		return lua.LString(v)
	case server.Simple:
		return table(l, "ok", string(v))
	case []any:
		t := l.CreateTable(len(v), 0)
		for _, item := range v {
			t.Append(value(l, item))
		}
		return t
	}
	return lua.LFalse
}

// reply sends the result of a script.
func reply(c *server.Peer, answer lua.LValue) {
	switch v := answer.(type) {
	case lua.LBool:
		if v {
			c.WriteInt(1)
		} else {
			c.WriteNull()
		}
	case lua.LNumber:
		c.WriteInt(int(v))
	case lua.LString:
		c.WriteBulk(string(v))
	case *lua.LTable:
		if text := v.RawGetString("err"); text != lua.LNil {
			c.WriteError(text.String())
		} else if text := v.RawGetString("ok"); text != lua.LNil {
			c.WriteInline(text.String())
		} else {
			replyList(c, v)
		}
	default:
		c.WriteNull()
	}
}

// replyList sends a list up to its first nil.
func replyList(c *server.Peer, t *lua.LTable) {
	n := 0
	for t.RawGetInt(n+1) != lua.LNil {
		n++
	}
	c.WriteLen(n)
	for i := range n {
		reply(c, t.RawGetInt(i+1))
	}
}

func table(l *lua.LState, key, text string) *lua.LTable {
	t := l.NewTable()
	t.RawSetString(key, lua.LString(text))
	return t
}

func list(l *lua.LState, texts []string) *lua.LTable {
	t := l.CreateTable(len(texts), 0)
	for _, text := range texts {
		t.Append(lua.LString(text))
	}
	return t
}

package redistest

import (
	"slices"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
)

// miniredis makes a Lua state for each run of a script. The sizes that gopher-lua
// gives one are for programs: to clear 150 kB took longer than most of our
// scripts.
func init() {
	lua.RegistrySize = 2048 // the longest unpack is of 1,000 values
	lua.CallStackSize = 64
}

// skipIdle answers in Lua's place what asynq's servers ask again and again where
// nothing happens. A day of virtual time has 4 million empty dequeues of 20 ms,
// and each would be a script, and a walk through all keys for those that expire.
//
// The servers' own records, 17,000 a day, are not kept at all: nobody reads them
// in virtual time.
func skipIdle(m *miniredis.Miniredis) {
	db := m.DB(0) // to ask m itself would be such a walk
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		switch {
		case cmd == "EVALSHA" && isDequeue(args) && !db.Exists(args[2]):
			c.WriteNull()
		case cmd == "EVALSHA" && len(args) > 2 && strings.HasPrefix(args[2], "asynq:servers:{"):
			c.WriteInline("OK")
		case cmd == "ZADD" && slices.Contains([]string{"asynq:servers", "asynq:workers"}, args[0]):
			c.WriteInt(0)
		default:
			return false
		}
		return true
	})
}

// isDequeue recognises asynq's script by its keys: pending, paused, active and
// lease of a queue.
func isDequeue(args []string) bool {
	return len(args) > 5 && args[1] == "4" && strings.HasSuffix(args[2], ":pending") && strings.HasSuffix(args[5], ":lease")
}

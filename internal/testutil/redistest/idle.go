package redistest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Before has hook see each command first, and answer it or not, as it reports. A nil hook sees
// none. Scripts that were sent before are slower then.
func Before(m *miniredis.Miniredis, hook server.Hook) {
	own := newMachine(m).hook
	db := m.DB(0) // to ask m itself would be a walk through all keys for those that expire
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		return hook != nil && hook(c, cmd, args...) || skipIdle(m, db, c, cmd, args) || own(c, cmd, args...)
	})
}

// skipIdle answers in Lua's place what asynq's servers ask again and again where
// nothing happens. A day of virtual time has 4 million empty dequeues of 20 ms,
// and each would be a script. Its looks for jobs that are due were half of all scripts.
//
// The servers' own records, 17,000 a day, are not kept at all: nobody reads them
// in virtual time.
func skipIdle(m *miniredis.Miniredis, db *miniredis.RedisDB, c *server.Peer, cmd string, args []string) bool {
	switch {
	case cmd == "EVALSHA" && isDequeue(args) && !db.Exists(args[2]):
		c.WriteNull()
	case cmd == "EVALSHA" && isForward(args) && nothingDue(m, db, args[2], args[4]):
		c.WriteInt(0)
	case cmd == "EVALSHA" && isCleanup(args) && nothingDue(m, db, args[2], args[3]):
		c.WriteInt(0)
	case cmd == "EVALSHA" && len(args) > 2 && strings.HasPrefix(args[2], "asynq:servers:{"):
		c.WriteInline("OK")
	case cmd == "ZADD" && slices.Contains([]string{"asynq:servers", "asynq:workers"}, args[0]):
		c.WriteInt(0)
	default:
		return false
	}
	return true
}

// isDequeue recognises asynq's script, and ours that runs in its place and has a key more,
// by the keys: pending, paused, active and lease of a queue. What ours is sent again for may
// find more than is pending.
func isDequeue(args []string) bool {
	return len(args) > 5 && strings.HasSuffix(args[2], ":pending") && strings.HasSuffix(args[5], ":lease") &&
		(args[1] == "4" || args[1] == "5" && args[11] == "1")
}

// isForward recognises the script that moves jobs that are due, of retry or scheduled,
// to pending.
func isForward(args []string) bool {
	return len(args) == 8 && args[1] == "2" && strings.HasSuffix(args[3], ":pending") &&
		(strings.HasSuffix(args[2], ":retry") || strings.HasSuffix(args[2], ":scheduled"))
}

// isCleanup recognises the script that forgets completed jobs after their time.
func isCleanup(args []string) bool {
	return len(args) == 6 && args[1] == "1" && strings.HasSuffix(args[2], ":completed")
}

// nothingDue reports whether a sorted set has nothing with a score of at most until.
func nothingDue(m *miniredis.Miniredis, db *miniredis.RedisDB, key, until string) bool {
	most, err := strconv.ParseFloat(until, 64)
	if err != nil {
		return false
	}
	if !db.Exists(key) {
		return true
	}
	scores, err := db.SortedSet(key)
	if err != nil {
		return false
	}
	m.Lock() // it gives out its own
	defer m.Unlock()
	for _, score := range scores {
		if score <= most {
			return false
		}
	}
	return true
}

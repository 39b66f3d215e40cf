package redistest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Before calls hook before each command. The hook reports whether it has answered the command. It may
// be nil.
func Before(m *miniredis.Miniredis, hook server.Hook) {
	own := newMachine(m).hook
	db := m.DB(0) // m itself would look through all keys for expired ones
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		return hook != nil && hook(c, cmd, args...) || skipIdle(m, db, c, cmd, args) || own(c, cmd, args...)
	})
}

// skipIdle answers polls of asynq's servers that find nothing, without running their scripts. A day of
// virtual time has millions of them. It drops the servers' own records, which no test reads.
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

// isDequeue recognizes asynq's dequeue and ours, which has one key more, by their keys. A repeated
// call of ours may find more than is pending, so it is not skipped.
func isDequeue(args []string) bool {
	return len(args) > 5 && strings.HasSuffix(args[2], ":pending") && strings.HasSuffix(args[5], ":lease") &&
		(args[1] == "4" || args[1] == "5" && args[11] == "1")
}

// isForward recognizes the script that moves due jobs to pending.
func isForward(args []string) bool {
	return len(args) == 8 && args[1] == "2" && strings.HasSuffix(args[3], ":pending") &&
		(strings.HasSuffix(args[2], ":retry") || strings.HasSuffix(args[2], ":scheduled"))
}

// isCleanup recognizes the script that deletes completed jobs after their retention.
func isCleanup(args []string) bool {
	return len(args) == 6 && args[1] == "1" && strings.HasSuffix(args[2], ":completed")
}

// nothingDue reports whether a sorted set has no score up to until.
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
	m.Lock() // scores is its own map
	defer m.Unlock()
	for _, score := range scores {
		if score <= most {
			return false
		}
	}
	return true
}

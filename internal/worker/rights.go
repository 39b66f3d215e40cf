package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/outage"
	"github.com/headgate/headgate/lua"
)

// commandsOfScripts are the commands that headgate's and asynq's scripts call, and that a worker
// sends by itself, with arguments that do no harm. KEY is a key that is there for this only.
const commandsOfScripts = `
bzpopmin KEY 0.001
del KEY
exists KEY
expire KEY 1
expireat KEY 1
get KEY
hdel KEY f
hexists KEY f
hget KEY f
hgetall KEY
hincrby KEY f 1
hlen KEY
hmget KEY f
hscan KEY 0
hset KEY f 1
hsetnx KEY f 1
hvals KEY
incr KEY
lindex KEY 0
llen KEY
lpush KEY 1
lrange KEY 0 1
lrem KEY 0 1
ltrim KEY 0 1
memory usage KEY
mget KEY
persist KEY
pexpire KEY 1
pttl KEY
publish KEY 1
rename KEY KEY
rpop KEY
rpoplpush KEY KEY
rpush KEY 1
rpushx KEY 1
sadd KEY 1
scan 0 COUNT 1
set KEY 1
setex KEY 1 1
sismember KEY 1
smembers KEY
srem KEY 1
time
unlink KEY
xadd KEY * f 1
xrange KEY - +
xrevrange KEY + -
zadd KEY 1 1
zcard KEY
zcount KEY 0 1
zincrby KEY 1 1
zmscore KEY 1
zrange KEY 0 1
zrangebyscore KEY 0 1
zrank KEY 1
zrem KEY 1
zremrangebyrank KEY 0 1
zremrangebyscore KEY 0 1
zrevrange KEY 0 1
zscan KEY 0
zscore KEY 1`

// tryRights tries each command in one step, and returns those that the user may not run, with
// Redis's words. Any other error is not about rights. It leaves nothing behind.
var tryRights = redis.NewScript(`
local refused = {}
for _, line in ipairs(ARGV) do
  local command = {}
  for word in string.gmatch(line, '%S+') do command[#command + 1] = word == 'KEY' and KEYS[1] or word end
  local reply = redis.pcall(unpack(command))
  local said = type(reply) == 'table' and reply.err
  if said and (string.find(said, 'no permissions') or string.find(said, "The user executing the script can't")) then
    refused[#refused + 1] = command[1] .. ' ' .. said
  end
  if command[1] ~= 'del' then redis.pcall('DEL', KEYS[1]) end
end
return refused`)

// checkRights returns which rights the user lacks that a worker needs: to each command that
// scripts call, to the keys of the scope and of asynq, and to the channels of both.
func checkRights(ctx context.Context, rdb redis.UniversalClient, user, prefix string) error {
	var commands []any
	for line := range strings.FieldsFuncSeq(commandsOfScripts, func(r rune) bool { return r == '\n' }) {
		commands = append(commands, line)
	}
	missing := map[string]bool{}
	for own, key := range map[string]string{prefix: prefix + "check", "asynq:": asynqdb.Key(asynqdb.CheckQueue, asynqdb.Bell)} {
		tried := tryRights.Run(ctx, rdb, []string{key}, commands...)
		refused, err := tried.StringSlice()
		if outage.Of(err) == outage.Rights && strings.Contains(lua.Explain(err, user, tried).Error(), " the key ") {
			missing["~"+own+"*"] = true
			continue
		}
		if err != nil {
			return err
		}
		for _, line := range refused {
			command, said, _ := strings.Cut(line, " ")
			switch {
			case command == "publish" && strings.Contains(said, "channel"):
				missing["&"+own+"*"] = true
			case strings.Contains(said, "access"):
				missing["~"+own+"*"] = true
			case command == "memory":
				missing["+memory|usage"] = true
			default:
				missing["+"+command] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var all []string
	for right := range missing {
		all = append(all, right)
	}
	slices.Sort(all)
	return fmt.Errorf("the Redis user %s lacks rights that a worker needs: %s: add them to the user's line in Redis's aclfile;"+
		" docs/operating.md has the whole line", user, strings.Join(all, " "))
}

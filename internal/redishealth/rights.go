package redishealth

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
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

// optional are commands that a worker can do without, and what then is missing.
var optional = []struct{ command, right, without string }{
	{"info memory", "+info", "warnings of eviction and of a missing append-only file"},
	{"acl dryrun default ping", "+acl|dryrun", "the warning of a user default whose rights lose data at a restart"},
	{"memory usage KEY", "+memory|usage", "the sizes of queues, and with them the metrics of queues"},
}

// DataKey is a key in the Redis of the queues that names its data: a random text that goes with
// the data when they move to another address.
const DataKey = "headgate:id"

// A RightsError names the rights that a user of Redis lacks.
type RightsError struct {
	User   string   // empty if the client does not say
	Rights []string // as an ACL has them: +zadd, ~asynq:*
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("the Redis user %s lacks rights that a worker needs: %s: add them to the user's line in Redis's aclfile;"+
		" docs/operating.md has the whole line", e.User, strings.Join(e.Rights, " "))
}

// TryRights tries each right that a worker needs at places, which begin the names of keys: each
// command of scripts, the keys and the channels. The first error is about missing rights, and nil
// if there are all. The warnings are about rights that a worker can do without. Any other error
// says that it could not be tried.
func TryRights(ctx context.Context, rdb redis.UniversalClient, places ...string) (missing error, warnings []string, err error) {
	user, lacks := script.User(rdb), map[string]bool{}
	for _, place := range places {
		if err := tryPlace(ctx, rdb, user, place, lacks); err != nil {
			return nil, nil, err
		}
	}
	for _, o := range optional {
		command := strings.ReplaceAll(o.command, "KEY", places[0]+"probe")
		var args []any
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		if Of(rdb.Do(ctx, args...).Err()) == Rights {
			warnings = append(warnings, fmt.Sprintf("the Redis user %s lacks the right %s: without it there are no %s", user, o.right, o.without))
		}
	}
	if len(lacks) > 0 {
		missing = &RightsError{user, slices.Sorted(maps.Keys(lacks))}
	}
	return missing, warnings, nil
}

// needs finds the right in the words of [script.Explain].
var needs = regexp.MustCompile(`the user needs (\S+)`)

// tryPlace adds the rights that the user lacks at a place.
func tryPlace(ctx context.Context, rdb redis.UniversalClient, user, place string, lacks map[string]bool) error {
	own, channel := place, place+"wake"
	var others []redis.Cmder
	if strings.HasPrefix(place, "asynq:") {
		own, channel = "asynq:", "asynq:cancel"
		others = []redis.Cmder{rdb.Get(ctx, DataKey), rdb.RPushX(ctx, DataKey, "")}
	}
	subscription := rdb.Subscribe(ctx, channel)
	_, err := subscription.ReceiveTimeout(ctx, time.Second)
	_ = subscription.Close()
	subscribe := redis.NewCmd(ctx, "subscribe", channel)
	subscribe.SetErr(err)
	tried := tryRights.Run(ctx, rdb, []string{place + "check"}, commands()...)
	for _, cmd := range append(others, subscribe, tried) {
		switch right := needs.FindStringSubmatch(fmt.Sprint(script.Explain(cmd.Err(), user, cmd))); {
		case Of(cmd.Err()) == Rights && right != nil:
			lacks[right[1]] = true
		case Unreachable(cmd.Err()) != nil:
			return cmd.Err()
		}
	}
	refused, _ := tried.StringSlice()
	for _, line := range refused {
		command, said, _ := strings.Cut(line, " ")
		switch {
		case command == "publish" && strings.Contains(said, "channel"):
			lacks["&"+own+"*"] = true
		case strings.Contains(said, "access"):
			lacks["~"+own+"*"] = true
		default:
			lacks["+"+command] = true
		}
	}
	return nil
}

func commands() (all []any) {
	for line := range strings.FieldsFuncSeq(commandsOfScripts, func(r rune) bool { return r == '\n' }) {
		all = append(all, line)
	}
	return all
}

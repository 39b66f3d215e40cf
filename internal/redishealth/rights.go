package redishealth

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

// scriptCommands are the commands that a worker sends, and that scripts of headgate and asynq call.
// Each group has harmless arguments, and the commands to try with them. KEY stands for a key that
// only this test uses.
var scriptCommands = [][2]string{
	{"", "time"},
	{"0", "scan"},
	{"KEY", "del exists get hgetall hlen hvals incr llen mget persist pttl rpop smembers type unlink zcard"},
	{"KEY 1", "expire expireat hdel hexists hget hmget hscan hstrlen lindex lpush pexpire publish rpush rpushx sadd set sismember srem zmscore zrank zrem zscan zscore"},
	{"KEY 1 1", "hincrby hset hsetnx lrange lrem ltrim setex zadd zcount zincrby zrange zrangebyscore zremrangebyrank zremrangebyscore zrevrange"},
	{"KEY KEY", "rename rpoplpush"},
	{"KEY * f 1", "xadd"},
	{"KEY - +", "xrange"},
	{"KEY + -", "xrevrange"},
}

// tryRights runs each line of ARGV, a command with its arguments, on KEYS[1]. It returns the
// commands that the user may not run, with Redis's error. It ignores other errors, and deletes what
// the commands wrote.
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

// DataKey is a key in the queues' Redis with a random ID of the data. The ID stays with the data if
// the data move to another address, as in a failover.
const DataKey = "headgate:id"

// A RightsError lists the rights that a Redis user lacks.
type RightsError struct {
	User   string   // empty if it is unknown
	Rights []string // as in an ACL: +zadd, ~asynq:*
}

func (e *RightsError) Error() string {
	return fmt.Sprintf("the Redis user %s lacks rights that a worker needs: %s: add them to the user's line in Redis's aclfile;"+
		" docs/operating.md has the whole line", e.User, strings.Join(e.Rights, " "))
}

// neededRight finds the right in the text of [script.Explain].
var neededRight = regexp.MustCompile(`the user needs (\S+)`)

// TryRights tries each right that a worker needs for the keys and channels with these prefixes. It
// returns a RightsError if the user lacks some of these rights, or another error if Redis cannot be
// used.
func TryRights(ctx context.Context, rdb redis.UniversalClient, prefixes ...string) error {
	user, missing := script.User(rdb), map[string]bool{}
	var commands []any
	for _, group := range scriptCommands {
		for name := range strings.FieldsSeq(group[1]) {
			commands = append(commands, name+" "+group[0])
		}
	}
	for _, prefix := range prefixes {
		own, channel := prefix, prefix+"wake"
		var tried []redis.Cmder
		if strings.HasPrefix(prefix, "asynq:") {
			own, channel = "asynq:", "asynq:cancel"
			tried = append(tried, rdb.Get(ctx, DataKey), rdb.RPushX(ctx, DataKey, ""))
			tried = append(tried, rdb.Do(ctx, "bzpopmin", prefix+"check", "0.001")) // Redis refuses it to every script
		}
		subscription := rdb.Subscribe(ctx, channel)
		_, err := subscription.ReceiveTimeout(ctx, AnswerTimeout)
		_ = subscription.Close()
		subscribe := redis.NewCmd(ctx, "subscribe", channel)
		subscribe.SetErr(err)
		keys := []string{prefix + "check"}
		tried = append(tried, rdb.Eval(ctx, "return 0", keys)) // Run needs no EVAL if Redis has the script
		inScript := tryRights.Run(ctx, rdb, keys, commands...)
		for _, cmd := range append(tried, subscribe, inScript) {
			right := neededRight.FindStringSubmatch(fmt.Sprint(script.Explain(cmd.Err(), user, cmd)))
			if ProblemOf(cmd.Err()) == NoRights && right != nil {
				missing[right[1]] = true
			} else if err := Unavailable(cmd.Err()); err != nil {
				return err
			}
		}
		refused, _ := inScript.StringSlice()
		for _, line := range refused {
			command, said, _ := strings.Cut(line, " ")
			switch {
			case command == "publish" && strings.Contains(said, "channel"):
				missing["&"+own+"*"] = true
			case strings.Contains(said, "access"):
				missing["~"+own+"*"] = true
			default:
				missing["+"+command] = true
			}
		}
	}
	if len(missing) > 0 {
		return &RightsError{user, slices.Sorted(maps.Keys(missing))}
	}
	return nil
}

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// cronState is what all replicas know of an entry: the hash in Redis. Moments
// are Unix seconds there, absent when zero.
type cronState struct {
	last     time.Time // no tick up to here is to be enqueued any more
	spec     string    // zone and cron line that ran last; empty after removal
	paused   time.Time // since when; ticks up to it still count
	intent   time.Time // the tick that is being enqueued
	intentAt time.Time // since when
	tick     time.Time // the last tick, and what came of it
	outcome  string
	job      string // the last job that was enqueued, and its queue
	jobQueue string

	enqueued, skipped, failed int64
}

// cronReadScript gives Redis's time, and for each of KEYS its whole hash.
var cronReadScript = redis.NewScript(`
local reply = { redis.call('TIME') }
for i, state in ipairs(KEYS) do
  reply[i + 1] = redis.call('HGETALL', state)
end
return reply
`)

// cronMoveScript sets the fields ARGV[3], ARGV[5] … of the hash KEYS[1] to
// ARGV[4], ARGV[6] … (an empty one removes the field), unless its last is no
// longer ARGV[1] or its intent no longer ARGV[2]. It returns 1 if it did and 0
// if somebody else was faster.
var cronMoveScript = redis.NewScript(`
local state = KEYS[1]
local last, intent = ARGV[1], ARGV[2]
if (redis.call('HGET', state, 'last') or '') ~= last then return 0 end
if (redis.call('HGET', state, 'intent') or '') ~= intent then return 0 end
for i = 3, #ARGV, 2 do
  local field, value = ARGV[i], ARGV[i + 1]
  if value == '' then
    redis.call('HDEL', state, field)
  else
    redis.call('HSET', state, field, value)
  end
end
return 1
`)

func (c *Cron) key(name string) string {
	return "hg:{" + c.scope + "}:cron:" + name
}

// read gives the states of entries and Redis's time, in one round trip.
func (c *Cron) read(ctx context.Context, names ...string) (time.Time, []cronState, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = c.key(name)
	}
	if len(keys) == 0 {
		keys = []string{c.key("")} // a key routes the script in a cluster
	}
	reply, err := cronReadScript.Run(ctx, c.rdb, keys).Slice()
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("reading schedules from Redis: %w", err)
	}
	now, err := parseRedisTime(reply[0])
	if err != nil {
		return time.Time{}, nil, err
	}
	states := make([]cronState, len(names))
	for i := range states {
		states[i] = parseCronState(reply[i+1])
	}
	return now, states, nil
}

func parseRedisTime(reply any) (time.Time, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return time.Time{}, fmt.Errorf("TIME of Redis is %v", reply)
	}
	seconds, err := strconv.ParseInt(fmt.Sprint(parts[0]), 10, 64)
	micros, err2 := strconv.ParseInt(fmt.Sprint(parts[1]), 10, 64)
	return time.Unix(seconds, micros*1000), errors.Join(err, err2)
}

func parseCronState(reply any) cronState {
	pairs, _ := reply.([]any)
	fields := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
	}
	number := func(field string) int64 {
		n, _ := strconv.ParseInt(fields[field], 10, 64) // absent is 0
		return n
	}
	moment := func(field string) time.Time {
		if fields[field] == "" {
			return time.Time{}
		}
		return time.Unix(number(field), 0)
	}
	return cronState{
		last: moment("last"), spec: fields["spec"], paused: moment("paused"),
		intent: moment("intent"), intentAt: moment("intent_at"),
		tick: moment("tick"), outcome: fields["outcome"],
		job: fields["job"], jobQueue: fields["job_queue"],
		enqueued: number("enqueued"), skipped: number("skipped"), failed: number("failed"),
	}
}

// move replaces the state from by to, if nobody else has moved it meanwhile.
func (c *Cron) move(ctx context.Context, name string, from, to cronState) (bool, error) {
	args := []any{unixText(from.last), unixText(from.intent)}
	set := func(field, before, after string) {
		if before != after {
			args = append(args, field, after)
		}
	}
	set("last", unixText(from.last), unixText(to.last))
	set("spec", from.spec, to.spec)
	set("paused", unixText(from.paused), unixText(to.paused))
	set("intent", unixText(from.intent), unixText(to.intent))
	set("intent_at", unixText(from.intentAt), unixText(to.intentAt))
	set("tick", unixText(from.tick), unixText(to.tick))
	set("outcome", from.outcome, to.outcome)
	set("job", from.job, to.job)
	set("job_queue", from.jobQueue, to.jobQueue)
	set("enqueued", fmt.Sprint(from.enqueued), fmt.Sprint(to.enqueued))
	set("skipped", fmt.Sprint(from.skipped), fmt.Sprint(to.skipped))
	set("failed", fmt.Sprint(from.failed), fmt.Sprint(to.failed))
	moved, err := cronMoveScript.Run(ctx, c.rdb, []string{c.key(name)}, args...).Bool()
	if err != nil {
		return false, fmt.Errorf("schedule %s: moving its state on: %w", name, err)
	}
	return moved, nil
}

// unixText is a moment as the state holds it: Unix seconds, empty when zero.
func unixText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

package scheduler

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/dispatcher"
	"github.com/headgate/headgate/throttle"
)

// TestCorruption_Records: whatever record of a waiting job is damaged, other jobs have their turns
// meanwhile, no limit is exceeded, and a minute after the last damage all is in order again.
func TestCorruption_Records(t *testing.T) {
	for seed := range uint64(max(1, *seeds/10)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			damaged(t, seed)
		})
	}
}

// TestCorruption_Deadlines: whatever an operator writes among the wait deadlines of jobs, other
// jobs expire in time, and a while after the last job nothing of it is left.
func TestCorruption_Deadlines(t *testing.T) {
	for _, score := range []float64{0, -1, 1, 1e15, math.Inf(1), math.Inf(-1)} {
		t.Run(fmt.Sprint(score), func(t *testing.T) {
			rule := needs("api")
			rule.MaxWait = 20 * time.Second
			virtual(t, settings{config: quick, limits: []throttle.Limit{perMinute(60, 10)}, rule: always(rule)}, func(t *testing.T, st *stack) {
				st.must(st.limiter.Pause(t.Context(), "api"))
				id := st.enqueueN(1, "")[0]
				time.Sleep(time.Second)
				st.must(st.limits.ZAdd(t.Context(), scopePrefix+"deadlines", redis.Z{Score: score, Member: "1\n2\n3"}).Err())
				time.Sleep(20 * time.Second)
				st.wantJob(id, asynq.TaskStateArchived, "")
				time.Sleep(5 * time.Second)
				st.wantClean()
			})
		})
	}
}

// TestCorruption_Lane: a lane that no script has made is removed by the next reconciliation, and so
// are records without a lane.
func TestCorruption_Lane(t *testing.T) {
	virtual(t, settings{config: quick, limits: []throttle.Limit{perMinute(60, 10)}}, func(t *testing.T, st *stack) {
		time.Sleep(time.Second)
		st.must(st.limits.ZAdd(t.Context(), scopePrefix+"lanes", redis.Z{Score: 7, Member: "abc"}).Err())
		st.must(st.limits.SAdd(t.Context(), scopePrefix+"full", "abc").Err())
		for _, key := range []string{"tickets", "meters", "demand"} {
			st.must(st.limits.HSet(t.Context(), scopePrefix+key, "abc", "abc").Err())
		}
		time.Sleep(dispatcher.DefaultReconcileInterval + 2*dispatcher.DefaultMaxHeartbeat)
		st.wantClean()
	})
}

// TestCorruption_WrongType: a key of a wrong type that only plain commands read is removed within a
// minute, and jobs have their turns meanwhile.
func TestCorruption_WrongType(t *testing.T) {
	for _, key := range []string{"weights", "limits", "deleted"} {
		t.Run(key, func(t *testing.T) {
			virtual(t, settings{config: quick, limits: []throttle.Limit{perMinute(60, 1)}}, func(t *testing.T, st *stack) {
				st.enqueueN(200, "")
				time.Sleep(5 * time.Second)
				st.must(st.limits.Set(t.Context(), scopePrefix+key, "x", 0).Err())
				time.Sleep(time.Minute)
				if st.limits.Type(t.Context(), scopePrefix+key).Val() == "string" {
					t.Error("the key still has a wrong type")
				}
				time.Sleep(time.Minute)
				if n := len(st.ran()); n < 124 {
					t.Errorf("%d jobs ran in 125 s, want 125", n)
				}
			})
		})
	}
}

// damaged lets jobs of all sorts wait, and damages their records for a minute.
func damaged(t *testing.T, seed uint64) {
	limits := []throttle.Limit{
		funnel("a", 20, 5),
		{Name: "b", Kind: throttle.SlidingLog, Rate: throttle.PerSecond(10)},
		{Name: "w", Kind: throttle.SlidingWindow, Rate: throttle.PerSecond(15)},
		funnel("host", 5, 2), funnel("quiet", 5, 1),
	}
	needs := []string{"a", "a:3", "b", "a b", "a host/x", "b host/x:2 w", "w host/y", "host/z w:4"}
	const quiet = 300
	var log journal
	s := settings{config: quick, limits: limits, rule: ruleOfPayload, log: log.logger()}
	virtual(t, s, func(t *testing.T, st *stack) {
		second, jobs := st.beside(s), quiet
		ran := func() []run { return slices.Concat(st.ran(), second.ran()) }
		w := &damager{rand: rand.New(rand.NewPCG(seed, 1)), ctx: t.Context(), rdb: st.limits}
		for range quiet {
			st.enqueue(needing("quiet"))
		}
		for range 60 {
			for range 1 + w.rand.IntN(32) {
				st.enqueue(needing(needs[w.rand.IntN(len(needs))]))
				jobs++
			}
			for range w.rand.IntN(4) {
				w.damage()
			}
			time.Sleep(time.Second)
		}
		if n := len(slices.DeleteFunc(ran(), func(r run) bool { return r.needs[0].Limit != "quiet" })); n < quiet*9/10 {
			t.Errorf("of an undamaged limit %d jobs ran in a minute, want %d", n, quiet)
		}
		time.Sleep(2*time.Minute + 5*time.Second) // a reconciliation has begun since, and has ended
		w.inOrder(t)
		for range 600 {
			if len(ran()) < jobs {
				time.Sleep(time.Second)
			}
		}
		once := map[string]bool{}
		for _, r := range ran() {
			once[r.id] = true
		}
		if len(once) != jobs || len(ran()) != jobs {
			t.Errorf("%d runs of %d jobs, want one of each of %d", len(ran()), len(once), jobs)
		}
		st.server.Shutdown()
		second.server.Shutdown()
		for _, limit := range limits {
			wantNotOver(t, limit, time.Time{}, st, second)
		}
		if n := log.times("cannot grant permits to waiting jobs"); n > 0 {
			t.Errorf("turns failed %d times", n)
		}
		st.wantClean()
		if t.Failed() {
			t.Logf("damage:\n%s\nlog:\n%s", strings.Join(w.done, "\n"), &log)
		}
	})
}

// damager damages records of waiting jobs.
type damager struct {
	rand *rand.Rand
	ctx  context.Context
	rdb  redis.UniversalClient
	done []string
}

// damage changes one field of a hash, or one member of a sorted set.
func (w *damager) damage() {
	keys := []string{"jobs", "jobs", "jobs", "jobs", "tickets", "demand", "meters", "contended", "lanes"}
	for _, pattern := range []string{"lane:*", "granted:*"} {
		for _, key := range w.rdb.Keys(w.ctx, scopePrefix+pattern).Val() {
			if !strings.Contains(key, "quiet|") {
				keys = append(keys, strings.TrimPrefix(key, scopePrefix))
			}
		}
	}
	slices.Sort(keys[9:])
	key := keys[w.rand.IntN(len(keys))]
	if strings.HasPrefix(key, "lane") || strings.HasPrefix(key, "granted") {
		w.damageSet(key)
	} else {
		w.damageHash(key)
	}
}

// texts are what a damager writes into hashes.
var texts = []string{"", "abc", "-5", "0", "1.5", "1e300", "99999999999999999999", "9007199254740993", "\n\n\n", "1\n2\n3\n0 1\n1\ndefault\na|\nb|", "\xff\x00"}

func (w *damager) damageHash(key string) {
	all := w.rdb.HGetAll(w.ctx, scopePrefix+key).Val()
	var fields []string
	for field, value := range all {
		if !strings.Contains(field+value, "quiet|") {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	if len(fields) == 0 {
		return
	}
	field := fields[w.rand.IntN(len(fields))]
	value := texts[w.rand.IntN(len(texts))]
	switch w.rand.IntN(5) {
	case 0:
		w.note("HDEL %s %q", key, field)
		w.rdb.HDel(w.ctx, scopePrefix+key, field)
		return
	case 1: // another job's
		value = all[fields[w.rand.IntN(len(fields))]]
	case 2: // a byte of it
		if was := []byte(all[field]); len(was) > 0 {
			was[w.rand.IntN(len(was))] = "0\n7|x"[w.rand.IntN(5)]
			value = string(was)
		}
	case 3: // one more
		field = texts[w.rand.IntN(len(texts))]
	}
	w.note("HSET %s %q %q, was %q", key, field, value, all[field])
	w.rdb.HSet(w.ctx, scopePrefix+key, field, value)
}

func (w *damager) damageSet(key string) {
	members := w.rdb.ZRange(w.ctx, scopePrefix+key, 0, -1).Val()
	members = slices.DeleteFunc(members, func(m string) bool { return strings.Contains(m, "quiet|") })
	if len(members) == 0 {
		return
	}
	member := members[w.rand.IntN(len(members))]
	score := []float64{0, -1, -7, 1, 1.5, 1e18, -1e18, float64(time.Now().Add(time.Hour).UnixMicro())}[w.rand.IntN(8)]
	switch w.rand.IntN(4) {
	case 0:
		w.note("ZREM %s %q", key, member)
		w.rdb.ZRem(w.ctx, scopePrefix+key, member)
		return
	case 1:
		member = []string{"abc", "", "default\n", "default\nabc", "default\na|\nzzz|"}[w.rand.IntN(5)]
	case 2: // one of another lane
		if names := w.rdb.HKeys(w.ctx, scopePrefix+"jobs").Val(); len(names) > 0 {
			slices.Sort(names)
			_, member, _ = strings.Cut(names[w.rand.IntN(len(names))], "\n")
		}
	}
	w.note("ZADD %s %g %q", key, score, member)
	w.rdb.ZAdd(w.ctx, scopePrefix+key, redis.Z{Score: score, Member: member})
}

func (w *damager) note(format string, args ...any) {
	w.done = append(w.done, fmt.Sprintf(format, args...))
}

// inOrder fails unless the records of waiting jobs are in order.
func (w *damager) inOrder(t *testing.T) {
	t.Helper()
	if odd, err := disorder(w.ctx, w.rdb); err != nil || len(odd) > 0 {
		t.Errorf("not in order: %q, %v; damage:\n%s", odd, err, strings.Join(w.done, "\n"))
	}
}

// disorder lists what is wrong with the records of waiting jobs: each waiting or granted job has its
// record and its place, the demand and the reserved permits are those of these jobs, and Redis keeps
// nothing of other jobs or lanes. A job whose wait deadline has passed may have a record alone. A
// script looks at all of it at one moment.
func disorder(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	return rdb.Eval(ctx, disorderScript, []string{scopePrefix}).StringSlice()
}

const disorderScript = `local P, out, sums, wanted = KEYS[1], {}, {}, {}
local call = redis.call
local function wrong(...) out[#out + 1] = table.concat({ ... }, ' ') end
local jobs = call('HGETALL', P .. 'jobs')
for i = 1, #jobs, 2 do
	local id = string.match(jobs[i], '\n(.*)$')
	local expiry, costs, lane = string.match(jobs[i + 1], '^%-?%d+\n%d+\n%d+\n(%d) *%d*\n([%d,]+)\n(.*)$')
	local waits = lane and call('ZSCORE', P .. 'lane:' .. lane, id)
	local granted = lane and call('ZSCORE', P .. 'granted:' .. lane, id)
	if not lane or waits and granted or not (waits or granted or expiry > '0') then wrong(jobs[i], jobs[i + 1]) end
	if (waits or granted) and not call('ZSCORE', P .. 'lanes', lane) then wrong('no lane', lane) end
	if lane and (expiry > '0') ~= (call('ZSCORE', P .. 'deadlines', jobs[i]) and true or false) then wrong('wait deadline of', jobs[i]) end
	local counts = waits and wanted or granted and tonumber(granted) > 0 and sums
	if counts then
		local rest = string.match(lane, '\n(.*)$')
		for cost in string.gmatch(costs, '%d+') do
			local meter
			meter, rest = string.match(rest, '^([^\n]+)\n?(.*)$')
			counts[meter] = (counts[meter] or 0) + cost
		end
	end
end
local function compare(name, want)
	local got = call('HGETALL', P .. name)
	for i = 1, #got, 2 do
		if string.sub(got[i], -1) ~= '\n' and got[i + 1] ~= string.format('%d', want[got[i]] or 0) then wrong(name, got[i], got[i + 1], want[got[i]] or 0) end
		want[got[i]] = nil
	end
	for meter, permits in pairs(want) do wrong(name, meter, 'lacks', permits) end
end
compare('meters', sums)
compare('demand', wanted)
for _, job in ipairs(call('ZRANGE', P .. 'deadlines', 0, -1)) do
	if call('HEXISTS', P .. 'jobs', job) == 0 then wrong('wait deadline of no job', job) end
end
for _, lane in ipairs(call('ZRANGE', P .. 'lanes', 0, -1)) do
	if call('EXISTS', P .. 'lane:' .. lane, P .. 'granted:' .. lane) == 0 then wrong('empty lane', lane) end
end
for _, lane in ipairs(call('HKEYS', P .. 'tickets')) do
	if not call('ZSCORE', P .. 'lanes', (string.gsub(lane, '\n$', ''))) then wrong('tickets of', lane) end
end
return out`

package throttle

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// plains are the funnels and token buckets that have nothing beside their rate, as Redis
// said last. A call that knows its limits can be decided by comparing that with what
// Redis has, and a few numbers: see lua/limits/plain.lua. It is safe for concurrent use.
type plains struct {
	mu    sync.Mutex
	known map[string]*plainLimit // by name
}

// plainLimit is what is known of a limit.
type plainLimit struct {
	summary string       // as lua/limits/include/summary.lua writes it
	limit   *activeLimit // nil if it is not plain
	skip    int          // calls that go the long way, since one had to
}

// skipped is for how many calls a limit is left alone that was changed, or for which
// somebody waits: to find that out costs a round trip.
const skipped = 64

// plainCall is one call of the plain way.
type plainCall struct {
	needs  []Need
	limits []plainLimit

	verdict int64 // as lua/limits/plain.lua says
	now     int64
	states  []int64 // TAT and n-ths of each meter
	err     error
}

// askElsewhere is the verdict of a call that the plain way cannot decide.
const askElsewhere = -1

// takePlainly decides a call the plain way, together with others. It is not ok where the
// whole script must be asked; then nothing was taken.
func (r *Redis) takePlainly(ctx context.Context, needs []Need) (d Decision, ok bool, err error) {
	limits, err := r.plain(ctx, needs)
	if limits == nil || err != nil {
		return d, false, err
	}
	call := &plainCall{needs: needs, limits: limits}
	if err := r.plainCalls.Do(ctx, call); err != nil {
		return d, false, unavailable(err)
	}
	return r.plainDecision(call)
}

// AllowPlain takes, for each of some calls that are made together, the permits of all its
// needs, in one script and in their order: as far as the plain way decides that, where
// limits have nothing beside their rate and nobody waits. What it does not decide it does
// not answer; then nothing was taken, and the call must ask otherwise. No call takes what
// one before it did not get. The needs are as Normalize makes them. A script that go-redis
// repeats, because its answer got lost, takes nothing twice within a minute.
func (r *Redis) AllowPlain(ctx context.Context, calls [][]Need, answer func(call int, d Decision, err error)) {
	var plain []*plainCall
	var numbers []int
	var rest [][]Need
	for i, needs := range calls {
		limits, err := r.plain(ctx, needs)
		switch {
		case err != nil:
			answer(i, Decision{}, err)
		case limits == nil || slices.ContainsFunc(rest, func(other []Need) bool { return meet(needs, other) }):
			rest = append(rest, needs)
		default:
			plain, numbers = append(plain, &plainCall{needs: needs, limits: limits}), append(numbers, i)
		}
	}
	if len(plain) == 0 {
		return
	}
	r.sendPlainly(ctx, plain, true)
	for i, call := range plain {
		if d, decided, err := r.plainDecision(call); decided || err != nil {
			answer(numbers[i], d, err)
		}
	}
}

// meet reports whether two calls need the same meter.
func meet(a, b []Need) bool {
	return slices.ContainsFunc(a, func(n Need) bool {
		return slices.ContainsFunc(b, func(m Need) bool { return n.Limit == m.Limit && n.Key == m.Key })
	})
}

// plainDecision is what the script has said to a call. It is not ok where it said nothing.
func (r *Redis) plainDecision(call *plainCall) (d Decision, ok bool, err error) {
	if call.err != nil {
		return d, false, unavailable(call.err)
	}
	if call.verdict == askElsewhere {
		r.plains.leave(call.needs)
		return d, false, nil
	}
	claims := make([]claim, len(call.needs))
	bind := &claims[0]
	for i, need := range call.needs {
		claims[i] = call.limits[i].claim(need, call.now, call.states[2*i], call.states[2*i+1])
		if claims[i].readyAt() > bind.readyAt() {
			bind = &claims[i]
		}
	}
	if call.verdict == 0 {
		return bind.decision(Denied), true, nil
	}
	return takeAll(claims), true, nil
}

// allowPlainly sends calls of Allow in one script.
func (r *Redis) allowPlainly(ctx context.Context, calls []*plainCall) {
	r.sendPlainly(ctx, calls, false)
}

// sendPlainly sends calls in one script. Those of jobs are known where it is repeated, and
// nobody takes there what one before did not get.
func (r *Redis) sendPlainly(ctx context.Context, calls []*plainCall, jobs bool) {
	c := r.callers.Next()
	defer r.callers.Done(c)
	name := ""
	if jobs {
		name = c.Name
	}
	var meters, needs []any
	numbers := map[[2]string]int{} // by meter and summary: two callers may know other definitions
	for _, call := range calls {
		for i, need := range call.needs {
			limit := call.limits[i]
			meter := limit.meter(need)
			number := numbers[[2]string{meter, limit.summary}]
			if number == 0 {
				number = len(numbers) + 1
				numbers[[2]string{meter, limit.summary}] = number
				meters = append(meters, need.Limit, limit.summary, meter, limit.rate())
			}
			if i == len(call.needs)-1 {
				number = -number
			}
			needs = limit.appendCost(append(needs, number), need.Cost)
		}
	}
	args := append([]any{name, c.Calls, new(lua.Sent), len(numbers)}, meters...)
	reply, err := r.run(ctx, lua.Plain, append(args, needs...)...).Int64Slice()
	at := 1
	for _, call := range calls {
		if call.err, call.verdict = err, askElsewhere; len(reply) == 0 {
			continue
		}
		call.now = reply[0]
		call.verdict, call.states = reply[at], reply[at+1:at+1+2*len(call.needs)]
		at += 1 + 2*len(call.needs)
	}
}

// plain returns what is known of the limits, or nil if the call must go the long way.
// What is not known it asks Redis, which takes a round trip.
func (r *Redis) plain(ctx context.Context, needs []Need) ([]plainLimit, error) {
	limits := make([]plainLimit, len(needs))
	var unknown []string
	r.plains.mu.Lock()
	for i, need := range needs {
		known := r.plains.known[need.Limit]
		switch {
		case known == nil:
			unknown = append(unknown, need.Limit)
		case known.skip > 0:
			if known.skip--; known.skip == 0 {
				delete(r.plains.known, need.Limit)
			}
			fallthrough
		case known.limit == nil || need.Cost == 0 || need.Cost > known.limit.Capacity:
			limits = nil
		default:
			limits[i] = *known
		}
		if limits == nil {
			break
		}
	}
	r.plains.mu.Unlock()
	if limits == nil || len(unknown) == 0 {
		return limits, nil
	}
	if err := r.learn(ctx, unknown); err != nil {
		return nil, err
	}
	return r.plain(ctx, needs)
}

// learn asks Redis for the summaries of limits.
func (r *Redis) learn(ctx context.Context, names []string) error {
	replies, err := r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, name := range names {
			p.HGet(ctx, r.prefix+"limit:"+name, "summary")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return unavailable(err)
	}
	r.plains.mu.Lock()
	defer r.plains.mu.Unlock()
	if r.plains.known == nil {
		r.plains.known = map[string]*plainLimit{}
	}
	for i, reply := range replies {
		r.plains.known[names[i]] = parsePlain(names[i], reply.(*redis.StringCmd).Val())
	}
	return nil
}

// leave has the next calls of these limits go the long way, and then Redis be asked
// anew.
func (p *plains) leave(needs []Need) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, need := range needs {
		if known := p.known[need.Limit]; known != nil {
			known.skip = skipped
		}
	}
}

// parsePlain reads a limit's summary: kind, n, microseconds and capacity, and a mark
// where there is more.
func parsePlain(name, summary string) *plainLimit {
	p := &plainLimit{summary: summary, skip: skipped}
	words := strings.Fields(summary)
	if len(words) != 4 || words[0] != string(Funnel) && words[0] != string(TokenBucket) {
		return p
	}
	var numbers [3]int64
	for i, word := range words[1:] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return p
		}
		numbers[i] = n
	}
	p.skip = 0
	p.limit = &activeLimit{Limit: Limit{
		Name: name, Kind: Kind(words[0]), Rate: Rate{int(numbers[0]), time.Duration(numbers[1]) * time.Microsecond}, Capacity: int(numbers[2]),
	}}
	return p
}

// meter is the meter of a need, by the name of its kind.
func (p plainLimit) meter(need Need) string {
	return string(p.limit.Kind) + ":" + need.Limit + "|" + need.Key
}

// rate is the limit's rate as the meter's state has it.
func (p plainLimit) rate() string {
	return strconv.Itoa(p.limit.Rate.N) + " " + strconv.FormatInt(p.limit.periodUS(), 10)
}

// appendCost appends what a cost stands for, as the script takes it.
func (p plainLimit) appendCost(args []any, cost int) []any {
	n, period := int64(p.limit.Rate.N), p.limit.periodUS()
	aheadUS, ahead := span(int64(p.limit.Capacity-cost), n, period)
	costUS, part := span(int64(cost), n, period)
	parts := ""
	if ahead > 0 || part > 0 {
		parts = strconv.FormatInt(ahead, 10) + " " + strconv.FormatInt(part, 10)
	}
	return append(args, aheadUS, costUS, parts)
}

// claim is a need with its meter as the script found it.
func (p plainLimit) claim(need Need, now, tat, rest int64) claim {
	g := &gcra{n: int64(p.limit.Rate.N), period: p.limit.periodUS(), capacity: int64(p.limit.Capacity), tat: tat, rest: rest}
	return claim{need: need, limit: p.limit, own: p.limit, now: now, meter: g}
}

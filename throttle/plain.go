package throttle

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/headgate/headgate/lua"
)

// plains are the funnels and token buckets that have nothing beside their rate, as Redis
// said last. A call that knows its limits can be decided by comparing that with what
// Redis has, and a few numbers: see lua/limits/plain.lua. It is safe for concurrent use.
type plains struct {
	mu    sync.Mutex
	known map[string]*plainLimit // by name
}

// skipped is for how many calls a limit is left alone that was changed, or for which
// somebody waits: to find that out costs a round trip.
const skipped = 64

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
	r.allowJobsPlainly(ctx, plain)
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
	if call.err == nil && !call.decided {
		r.plains.leave(call.needs)
	}
	return call.decision, call.decided, unavailable(call.err)
}

// allowPlainly sends calls of Allow in one script.
func (r *Redis) allowPlainly(ctx context.Context, calls []*plainCall) {
	r.sendPlainly(ctx, calls, "")
}

// allowJobsPlainly sends calls of jobs in one script. They are known where it is repeated,
// and nobody takes there what one before did not get.
func (r *Redis) allowJobsPlainly(ctx context.Context, calls []*plainCall) {
	c := r.callers.Next()
	defer r.callers.Done(c)
	r.sendPlainly(ctx, calls, &stamp{caller: c})
}

// stamp names a script of jobs' calls, and says how often it was sent.
type stamp struct {
	caller *lua.Caller
	sent   int
}

// MarshalBinary implements encoding.BinaryMarshaler: go-redis calls it each time it sends.
func (s *stamp) MarshalBinary() ([]byte, error) {
	s.sent++
	return fmt.Appendf(nil, "%s %d %d", s.caller.Name, s.caller.Calls, s.sent), nil
}

// sendPlainly sends calls in one script.
func (r *Redis) sendPlainly(ctx context.Context, calls []*plainCall, stamp any) {
	b := plainBatch{numbers: map[string]int{}}
	var sent []*plainCall
	for _, call := range calls {
		if b.add(call) {
			sent = append(sent, call)
		}
	}
	if err := b.send(ctx, r, stamp); err != nil {
		for _, call := range sent {
			call.err = err
		}
		return
	}
	for i, call := range sent {
		b.decide(call, i)
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
	summaries, err := r.rdb.HMGet(ctx, r.prefix+"summaries", names...).Result()
	if err != nil {
		return unavailable(err)
	}
	r.plains.mu.Lock()
	defer r.plains.mu.Unlock()
	if r.plains.known == nil {
		r.plains.known = map[string]*plainLimit{}
	}
	for i, name := range names {
		summary, _ := summaries[i].(string)
		r.plains.known[name] = parsePlain(name, summary)
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

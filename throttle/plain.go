package throttle

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/script"
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
	rate    string       // of that n and period, as meters have them
	limit   *activeLimit // nil if it is not plain
	skip    int          // calls that go the long way, since one had to
}

// skipped is for how many calls a limit is left alone that was changed, or for which
// somebody waits: to find that out costs a round trip.
const skipped = 64

// parsePlain reads a limit's summary: kind, n, microseconds and capacity, and a mark
// where there is more.
func parsePlain(name, summary string) *plainLimit {
	p := &plainLimit{summary: summary, skip: skipped}
	words := strings.Fields(summary)
	if len(words) != 4 || words[0] != string(Funnel) && words[0] != string(TokenBucket) {
		return p
	}
	n, period, capacity := number(words[1]), number(words[2]), number(words[3])
	if min(n, period, capacity) < 1 {
		return p // no script has written that
	}
	if us, _ := span(capacity, n, period); us < far/2 { // so that no TAT comes near it
		limit := Limit{Name: name, Kind: Kind(words[0]), Rate: Rate{int(n), microseconds(period)}, Capacity: int(capacity)}
		p.skip, p.limit, p.rate = 0, &activeLimit{Limit: limit}, words[1]+" "+words[2]
	}
	return p
}

// plain is what is known of the limits, or nil if the call must go the long way.
// What is not known it asks Redis, which takes a round trip.
func (r *Redis) plain(ctx context.Context, needs []Need) ([]plainLimit, error) {
	limits, unknown := r.plains.of(needs)
	if len(unknown) == 0 {
		return limits, nil
	}
	summaries, err := r.rdb.HMGet(ctx, r.prefix+"summaries", unknown...).Result()
	if script.IsDamage(err) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable(err)
	}
	r.plains.learn(unknown, summaries)
	return r.plain(ctx, needs)
}

// of is what is known of the limits, and which are not known. Neither is there if the
// call must go the long way.
func (p *plains) of(needs []Need) (limits []plainLimit, unknown []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, need := range needs {
		known := p.known[need.Limit]
		if known == nil {
			unknown = append(unknown, need.Limit)
			continue
		}
		if known.skip > 0 {
			if known.skip--; known.skip == 0 {
				delete(p.known, need.Limit)
			}
			return nil, nil
		}
		if known.limit == nil || need.Cost == 0 || need.Cost > known.limit.Capacity {
			return nil, nil
		}
		limits = append(limits, *known)
	}
	return limits, unknown
}

// learn notes summaries of limits.
func (p *plains) learn(names []string, summaries []any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, name := range names {
		summary, _ := summaries[i].(string)
		p.known[name] = parsePlain(name, summary)
	}
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

// A Plain is what the plain way answers to a call. If the call is not decided and there is no
// error, nothing was taken, and the whole script must be asked.
type Plain struct {
	Decision
	Decided bool
	Err     error
}

// plainCall is one call of the plain way.
type plainCall struct {
	needs  []Need
	limits []plainLimit
	meters []int // their places in the batch
	answer *Plain
}

func (c *plainCall) meterCount() int { return len(c.needs) }

// takePlainly decides a call of Allow the plain way, together with others.
func (r *Redis) takePlainly(ctx context.Context, needs []Need) Plain {
	limits, err := r.plain(ctx, needs)
	if limits == nil || err != nil {
		return Plain{Err: err}
	}
	call := &plainCall{needs: needs, limits: limits, answer: new(Plain)}
	if err := r.plainCalls.do(ctx, call); err != nil {
		return Plain{Err: unavailable(err)}
	}
	return *call.answer
}

// AllowPlain takes, for each of some calls that are made together, the permits of all its
// needs, in one script and in their order: as far as the plain way decides that, where
// limits have nothing beside their rate and nobody waits. No call takes what
// one before it did not get. The needs are as Normalize makes them. A script that go-redis
// repeats, because its answer got lost, takes nothing twice within a minute.
func (r *Redis) AllowPlain(ctx context.Context, calls [][]Need) []Plain {
	answers := make([]Plain, len(calls))
	var plain []*plainCall
	rest := map[meterKey]bool{} // meters of calls that go the long way
	for i, needs := range calls {
		limits, err := r.plain(ctx, needs)
		switch {
		case err != nil:
			answers[i].Err = err
		case limits == nil || slices.ContainsFunc(needs, func(n Need) bool { return rest[meterKey{n.Limit, n.Key}] }):
			for _, n := range needs {
				rest[meterKey{n.Limit, n.Key}] = true
			}
		default:
			plain = append(plain, &plainCall{needs: needs, limits: limits, answer: &answers[i]})
		}
	}
	for some := range script.Batches(plain, (*plainCall).meterCount) {
		c := r.callers.Next()
		r.sendPlainly(ctx, some, c.Name, c.Calls, new(script.Sent))
		r.callers.Done(c)
	}
	return answers
}

// allowPlainly sends calls of Allow in one script, or in several if they need many meters.
func (r *Redis) allowPlainly(ctx context.Context, calls []*plainCall) {
	for some := range script.Batches(calls, (*plainCall).meterCount) {
		r.sendPlainly(ctx, some, "", 0, 1)
	}
}

// sendPlainly sends calls in one script. The stamp is who sends it, the number of this one
// and how often it was sent: so jobs' calls are known where it is repeated.
func (r *Redis) sendPlainly(ctx context.Context, calls []*plainCall, stamp ...any) {
	b := plainBatch{places: map[string]int{}}
	var sent []*plainCall
	for _, call := range calls {
		if b.add(call) {
			sent = append(sent, call)
		}
	}
	err := b.send(ctx, r, stamp)
	if script.IsDamage(err) { // each asks otherwise, and alone if it must be
		err = nil
	}
	for i, call := range sent {
		if err == nil {
			b.decide(call, i)
		}
		call.answer.Err = unavailable(err)
	}
	for _, call := range calls {
		if !call.answer.Decided && err == nil {
			r.plains.leave(call.needs)
		}
	}
}

// plainBatch is calls of the plain way that are sent in one script: what
// lua/limits/plain.lua takes, and what it said.
type plainBatch struct {
	places map[string]int // of meters, by their ID
	ids    []string
	limits []plainLimit // of the meters
	rows   []plainRow

	now      int64
	taken    int64     // when the permits were taken that it had taken before
	takenAt  time.Time // when all were, by this process's clock, if jobs ask
	verdicts string
	meters   []*gcra // as the calls that were decided have left them
}

// plainRow is calls in a row that are alike.
type plainRow struct {
	*plainCall
	alike int
}

// add adds a call, unless it knows a limit otherwise than another one does.
func (b *plainBatch) add(call *plainCall) bool {
	for i, need := range call.needs {
		limit := call.limits[i]
		id := string(limit.limit.Kind) + ":" + need.Limit + "|" + need.Key
		place, known := b.places[id]
		if !known {
			place = len(b.ids)
			b.places[id], b.ids, b.limits = place, append(b.ids, id), append(b.limits, limit)
		}
		if b.limits[place].summary != limit.summary {
			return false
		}
		call.meters = append(call.meters, place)
	}
	if n := len(b.rows); n > 0 && slices.Equal(b.rows[n-1].needs, call.needs) {
		b.rows[n-1].alike++
	} else {
		b.rows = append(b.rows, plainRow{call, 1})
	}
	return true
}

// send asks Redis for the verdicts.
func (b *plainBatch) send(ctx context.Context, r *Redis, stamp []any) error {
	keys, args := slices.Clone(r.keys), slices.Clone(stamp)
	for i, id := range b.ids {
		keys, args = append(keys, r.prefix+"m:"+id), append(args, b.limits[i].limit.Name)
	}
	for _, limit := range b.limits {
		args = append(args, limit.summary)
	}
	for _, limit := range b.limits {
		args = append(args, limit.rate)
	}
	for _, row := range b.rows {
		args = b.append(args, row)
	}
	reply, err := plainScript.Run(ctx, r.rdb, keys, args...).Text()
	if err != nil || reply == "" {
		return err
	}
	lines := strings.Split(reply, "\n")
	said := strings.Fields(lines[0])
	b.now, b.verdicts = number(said[0])*1e6+number(said[1]), said[2]
	if b.taken = b.now; len(said) > 3 {
		b.taken = number(said[3])
	}
	if sent, ok := stamp[2].(*script.Sent); ok {
		b.takenAt = r.callers.When(b.now, sent).Add(-microseconds(b.now - b.taken))
	}
	for i, limit := range b.limits { // of a state that the script could not use nobody asks
		b.meters = append(b.meters, readState(limit.limit, []any{lines[1+i]}).(*gcra))
	}
	return nil
}

// append appends a row as the script takes it.
func (b *plainBatch) append(args []any, row plainRow) []any {
	all, head, times := len(row.meters) == len(b.ids) && slices.IsSorted(row.meters), any(""), 1
	switch {
	case !all:
		head, times = len(row.meters), row.alike
	case row.alike > 1:
		head = -row.alike
	}
	for range times {
		args = append(args, head)
		for i, need := range row.needs {
			if !all {
				args = append(args, row.meters[i]+1)
			}
			args = appendCost(args, row.limits[i].limit, need.Cost)
		}
	}
	return args
}

// appendCost appends what a cost stands for, as the script takes it.
func appendCost(args []any, limit *activeLimit, cost int) []any {
	n, period := int64(limit.Rate.N), limit.periodUS()
	aheadUS, ahead := span(int64(limit.Capacity-cost), n, period)
	costUS, part := span(int64(cost), n, period)
	parts := ""
	if ahead > 0 || part > 0 {
		parts = strconv.FormatInt(ahead, 10) + " " + strconv.FormatInt(part, 10)
	}
	return append(args, aheadUS, costUS, parts)
}

// decide has a call know what the script said to the i-th.
func (b *plainBatch) decide(call *plainCall, i int) {
	if i >= len(b.verdicts) || b.verdicts[i] == '?' {
		return
	}
	claims := make([]claim, len(call.needs))
	for i, need := range call.needs {
		limit := call.limits[i].limit
		claims[i] = claim{gate: gate{meter: b.meters[call.meters[i]]}, need: need, limit: limit, own: limit, now: b.now}
	}
	call.answer.Decided = true
	if b.verdicts[i] == '-' {
		bind, at := binding(claims)
		call.answer.Decision = bind.denial(at)
		return
	}
	d := takeAll(claims)
	d.TakenAt = b.takenAt
	if b.verdicts[i] == '=' { // what was taken since is not known
		d.At = time.UnixMicro(b.taken)
		for i := range d.Taken {
			d.Taken[i].Mark = mark{}
		}
	}
	call.answer.Decision = d
}

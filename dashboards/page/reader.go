package page

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/forecast"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// How often what is read: fast what costs Redis next to nothing, and slowly what
// it has to look for.
const (
	// turn is as often as the processes write what they did.
	turn = time.Second
	// queuesTurn spares Redis asynq's own scripts, which count and sample each queue.
	queuesTurn = 5 * time.Second
	// limitsTurn is for what changes without anybody changing it, such as a block that
	// ends; what the changelog has has them read in the next turn.
	limitsTurn = 30 * time.Second
	wantsTurn  = 2 * time.Second
	// forecastTurn is as far as a forecast may be behind what waits, and it takes at
	// most 1/forecastShare of the time.
	forecastTurn  = 2 * time.Second
	forecastShare = 50
	wantsShare    = 200 // looking through what waits takes at most 1/200 of the time
	// readTimeout bounds a turn, and what a view reads itself, but for the calls of
	// asynq's Inspector.
	readTimeout = 5 * time.Second
)

// reader reads for all who look, when one of them asks for what is newer than a turn. So an
// open page costs Redis the same whether one looks or hundreds, and a closed one nothing.
//
// reading guards state, which is what one turn leaves to the next, and the last snapshot is
// there without it, so that a slow Redis keeps nobody from what was read before.
//
// The way of a number to a screen is: a browser asks for its page again, and the first of those who
// ask when a snapshot is old has a new one read.
type reader struct {
	ctx     context.Context
	last    atomic.Pointer[snapshot] // never nil; the first knows nothing
	reading sync.Mutex               // held while Redis is read
	state   state
}

// state is what the reader knows from turn to turn: what is read more seldom than each
// second, and what adds up. What snapshots take from it is not changed any more but
// replaced by the next that is read, since viewers may still look at it.
type state struct {
	knowledge
	rdb     redis.UniversalClient
	scope   string
	queues  *inspect.Queues
	known   inspect.Snapshot
	history series
	due     due
}

// due is when each is to be read again.
type due struct{ limits, forecast, wants, queues time.Time }

// newReader has read nothing yet.
func newReader(ctx context.Context, s state) *reader {
	s.history.parts = map[int64]map[string]stats.LimitSummary{}
	r := &reader{ctx: ctx, state: s}
	r.last.Store(&snapshot{Now: time.Now(), newer: make(chan struct{})})
	return r
}

// latest is the snapshot of a while ago at most, or one that is read now. A snapshot is good for
// half a turn more than a turn, so that most who load a page while others look wait for nothing.
// A turn that failed counts as read, so an outage is not asked about once a request.
//
// The first who wants a newer one has it read, and the others wait with him. Who leaves, or
// sees the page close, waits no longer, and gets what was known.
func (r *reader) latest(ctx context.Context) *snapshot {
	s := r.last.Load()
	if time.Since(s.At) < turn+turn/2 {
		return s
	}
	if s.asked.CompareAndSwap(false, true) {
		go r.read(s)
	}
	select {
	case <-s.newer:
		return r.last.Load()
	case <-ctx.Done():
		return s.outdated(ctx.Err())
	case <-r.ctx.Done():
		return s.outdated(r.ctx.Err())
	}
}

// read puts a newer snapshot in the place of one. A viewer who leaves does not stop it,
// since others may wait; readTimeout does. Where Redis cannot be read the newer has an Err
// and what was known before, as of the time that Redis had then. asynq's Inspector knows
// no timeout: the turn waits for its call that is underway, and with it all who need a
// new snapshot.
func (r *reader) read(before *snapshot) {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.last.Load() != before {
		return // somebody else has read meanwhile
	}
	ctx, cancel := context.WithTimeout(r.ctx, readTimeout)
	defer cancel()
	s, err := r.state.read(ctx)
	if err != nil { // what was known stays on the page, which says that it is old
		s = before.outdated(err)
	}
	r.last.Store(s)
	close(before.newer)
}

// again has what was changed just now read at once, and shown: who pressed a button
// sees what it did when the page comes back, and all others with it.
func (r *reader) again() {
	r.reading.Lock()
	r.state.due = due{}
	r.reading.Unlock()
	r.read(r.last.Load())
}

// read asks Redis for what has changed or is due. It makes a whole snapshot or fails;
// what a turn that failed has read already is known to the next.
//
// The time is asked for first: where Redis is away the turn ends there. How many wait
// comes next, and the newest line of the changelog, which tells whether any limit has
// changed, so most turns need not ask about limits. All but the queues is of the
// limiter's scope.
func (s *state) read(ctx context.Context) (*snapshot, error) {
	start := time.Now()
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	s.Latency = time.Since(start)
	before := s.Waiting
	// One pipeline, and O(1) of Redis's time however many wait.
	s.Waiting, _, s.Turns, err = s.queues.Limiter.BacklogStats(ctx)
	if err != nil {
		return nil, err
	}
	if before == 0 || s.Waiting == 0 { // the first that waits is looked at once, and nothing outlives the last
		s.due.forecast, s.due.wants = time.Time{}, time.Time{}
	}
	err = errors.Join(
		s.readLog(ctx),
		seldom(ctx, &s.due.limits, limitsTurn, 0, func(ctx context.Context) error { return s.known.ReadLimits(ctx, s.queues.Limiter) }),
		seldom(ctx, &s.due.forecast, forecastTurn, forecastShare, s.readForecast),
		seldom(ctx, &s.due.wants, wantsTurn, wantsShare, s.readWants),
		seldom(ctx, &s.due.queues, queuesTurn, 0, s.readQueues),
		s.readHistory(ctx, now),
	)
	if err != nil {
		return nil, err
	}
	if s.Limits, err = s.rows(ctx, now); err != nil {
		return nil, err
	}
	s.Says = summarize(s.knowledge, now)
	return &snapshot{knowledge: s.knowledge, At: time.Now(), Now: now.Local(), newer: make(chan struct{})}, nil
}

// seldom reads what is due, and no more for a while: the longer, the longer that takes, so
// that it takes at most a share of the time. What failed is due in the next turn.
func seldom(ctx context.Context, due *time.Time, turn, share time.Duration, read func(context.Context) error) error {
	start := time.Now()
	if start.Before(*due) {
		return nil
	}
	if err := read(ctx); err != nil {
		return err
	}
	*due = start.Add(max(turn, share*time.Since(start)))
	return nil
}

// readLog reads the changelog where it has something new: its newest entry in each
// turn, and as much as Redis remembers, some 500 entries, where that is another one. All
// that changes limits stands there, in the same step: so they are due then, too. A
// changelog that Redis has lost is lost here.
func (s *state) readLog(ctx context.Context) error {
	last, err := s.queues.Limiter.Changes(ctx, 1)
	if err != nil || slices.EqualFunc(last, s.Log[:min(1, len(s.Log))], func(a, b throttle.Change) bool { return a.ID == b.ID }) {
		return err
	}
	// Due in any case: the next turn would find nothing new if the rest failed.
	s.due.limits = time.Time{}
	s.Log, err = s.queues.Limiter.Changes(ctx, 500)
	return err
}

// readWants looks through what waits, the more seldom the longer that takes: a round
// trip for each thousand meters that are wanted. What took 50 ms is next read after 10 s;
// until then the numbers of keys stand still, while that of all jobs does not.
func (s *state) readWants(ctx context.Context) error {
	s.wants, s.known.Demand = map[string][]waitdb.Demand{}, nil
	if s.Waiting == 0 || s.forecast == nil {
		return nil
	}
	wants, demand, err := stats.ReadDemand(ctx, s.queues.Limiter, s.forecast, s.Turns)
	if err != nil {
		return err
	}
	s.known.Demand = demand
	for _, w := range wants {
		s.wants[w.Limit] = append(s.wants[w.Limit], w)
	}
	return nil
}

// readForecast makes a forecast, if anything waits or is pending.
func (s *state) readForecast(ctx context.Context) error {
	s.Pending, s.Uncounted = 0, 0
	if pending, err := s.queues.PendingCount(ctx); err != nil || pending+s.Waiting == 0 {
		s.forecast = nil
		return err
	}
	forecast, err := s.queues.Forecast(ctx, forecast.Options{})
	if err != nil {
		return err
	}
	if s.forecast = forecast; s.Waiting == 0 && forecast.Pending == 0 {
		s.forecast = nil
	}
	s.Pending, s.Uncounted = forecast.Pending, forecast.Uncounted
	return nil
}

// readQueues asks asynq for its queues and servers, with three round trips for each
// queue, and two for each server. How many of a queue's jobs wait is as the forecast has
// it: the numbers of all lanes, or of those that were looked at as a sample. The Inspector
// takes no context: see readTimeout.
func (s *state) readQueues(ctx context.Context) error {
	infos, err := s.queues.ReadQueues(ctx, "", inspect.WaitingByQueue(s.forecast, s.Waiting))
	if err != nil {
		return err
	}
	q := queues{Infos: infos}
	for _, info := range infos {
		q.Running += info.Active
		q.Archived += info.Archived
	}
	servers, err := s.queues.Inspector.Servers()
	if err != nil {
		return err
	}
	q.Servers = len(servers)
	s.Queues = q
	return nil
}

// readHistory reads what the processes have said since the last turn. In the first it
// reads 15 minutes at once, so that a curve is there as soon as somebody looks. So it
// does after a time in which nobody looked: the stream itself goes no further back
// than 16 minutes. One round trip brings a thousand summaries, of which a process
// writes one a second at most.
func (s *state) readHistory(ctx context.Context, now time.Time) error {
	if s.history.since == "" { // nothing older is shown
		s.history.since = stats.StreamID(now.Add(-parts * part))
	}
	news, err := stats.ReadSummaries(ctx, s.rdb, s.scope, s.history.since)
	if err != nil {
		return err
	}
	s.history.move(now)
	for _, n := range news {
		// One written since Redis told its time may begin the next part.
		if n.At.After(now) && n.At.Before(now.Add(part)) {
			s.history.move(n.At)
		}
		// The next turn begins after it, so nothing counts twice.
		s.history.since = n.ID
		if n.At.After(now.Add(-inspect.RecentWindow)) {
			s.history.recent = append(s.history.recent, n)
		}
		for name, l := range n.Limits {
			s.history.add(n.At, name, l)
			if d := l.Denial; d != nil {
				s.history.deny(denialEvent(n.At, name, *d))
			}
		}
	}
	s.Denials = s.history.denials
	return nil
}

// maxLooks bounds the meters that are looked at in one turn, which is five calls of
// Redis. Where there are more, limits that less is wanted of go without.
const maxLooks = 500

// rows are the limits, what most of the jobs wait for first.
func (s *state) rows(ctx context.Context, now time.Time) ([]limitRow, error) {
	known := s.known
	known.Now, known.Forecast = now, s.forecast
	known.Recent, _ = inspect.CountRecent(s.history.recent, now)
	limits, err := known.States(ctx, s.queues.Limiter, maxLooks)
	rows := make([]limitRow, len(limits))
	for i, l := range limits {
		rows[i] = limitRow{Limit: l, now: now.Local()}
		rows[i].Row, rows[i].From = s.history.row(l.Name)
		for _, t := range rows[i].Row {
			rows[i].Sum = rows[i].Sum.Add(t)
		}
	}
	return rows, err
}

// series is what the processes said they did, by part of time, as a number since 1970, and
// by limit. It is bounded by names: a summary has 50 limits at most and one called other.
type series struct {
	since   string // the last summary that was read, by its ID in the stream
	last    int64  // the newest part
	parts   map[int64]map[string]stats.LimitSummary
	recent  []stats.Summary // those that rates are made of
	denials []incident      // the newest first
}

// move goes on to a moment, and forgets what is too old.
func (s *series) move(now time.Time) {
	s.last = max(s.last, now.UnixMilli()/part.Milliseconds())
	maps.DeleteFunc(s.parts, func(i int64, _ map[string]stats.LimitSummary) bool { return i <= s.last-parts })
	s.recent = slices.DeleteFunc(s.recent, func(of stats.Summary) bool { return of.At.Before(now.Add(-inspect.RecentWindow)) })
}

// add notes what a process said. What is too old, or in a part to which move has not come,
// is left out.
func (s *series) add(at time.Time, limit string, l stats.LimitSummary) {
	i := at.UnixMilli() / part.Milliseconds()
	if i > s.last || i <= s.last-parts {
		return
	}
	if s.parts[i] == nil {
		s.parts[i] = map[string]stats.LimitSummary{}
	}
	s.parts[i][limit] = s.parts[i][limit].Add(l)
}

// maxDenials bounds the denials that are remembered. They are examples: how many there
// were the tallies say.
const maxDenials = 50

// deny notes a denial. They come oldest first. Snapshots have the list, so it is made anew.
func (s *series) deny(d incident) {
	s.denials = append([]incident{d}, s.denials[:min(len(s.denials), maxDenials-1)]...)
}

// row is a limit's last 15 minutes, the oldest first, and when they begin.
func (s *series) row(limit string) (row []stats.LimitSummary, from time.Time) {
	first := s.last - parts + 1
	for i := range int64(parts) {
		row = append(row, s.parts[first+i][limit])
	}
	return row, time.UnixMilli(first * part.Milliseconds())
}

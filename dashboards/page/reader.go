package page

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/inspect"
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
	// surveyTurn is less than the 5 s in which a process makes a new survey.
	surveyTurn = 2 * time.Second
	wantsShare = 200 // looking through what waits takes at most 1/200 of the time
	// readTimeout bounds a turn, and what a view reads itself, but for the calls of
	// asynq's Inspector.
	readTimeout = 5 * time.Second
)

// reader reads for all who look. It works only while somebody does, so an open page
// costs Redis the same whether one looks or hundreds, and a closed one nothing.
//
// reading guards state, which is what one turn leaves to the next. mu guards the
// rest and is never held while Redis is asked, so that a slow Redis keeps nobody
// from what was read before.
//
// The way of a number to a screen is: read makes a snapshot, tell wakes the streams,
// each takes the latest snapshot, and the first that asks it for a place has that view
// made. A page that is loaded takes the same way without being woken.
type reader struct {
	page *Page
	ctx  context.Context

	reading sync.Mutex // held while Redis is read
	state   state

	mu   sync.Mutex
	snap *snapshot // the last, or nil before the first
	// viewers are the streams. Each channel has room for one word: to be woken twice
	// is the same as once.
	viewers map[chan struct{}]struct{}
	running bool // whether run does
}

// state is what the reader knows from turn to turn: what is read more seldom than each
// second, and what adds up. What snapshots take from it is not changed any more but
// replaced by the next that is read, since viewers may still look at it; of the history
// they take copies.
type state struct {
	known   inspect.Known
	judge   inspect.Judge
	log     []throttle.Change  // the newest first
	wants   map[string]*wanted // by limit; nil where nothing waits
	queues  queues
	history *series

	limitsAt, queuesAt, wantsAt, surveyAt, forecastAt time.Time // when each is to be read again
	changed                                           int       // how often again was called
}

// newReader makes the reader of a page. It ends with ctx.
func newReader(ctx context.Context, p *Page) *reader {
	return &reader{page: p, ctx: ctx, viewers: map[chan struct{}]struct{}{}, state: state{known: inspect.Known{KeyOf: p.KeyOf}, history: newSeries()}}
}

// maxViewers bounds how many may look at once: each has a connection and a goroutine.
// Those beyond can still load pages, which stand still then until the script, which
// goes on asking, gets a place.
const maxViewers = 500

// watch has a viewer woken after each turn, until done is called. It reports false
// where too many look. The first viewer starts the turns.
func (r *reader) watch() (woken <-chan struct{}, done func(), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.viewers) >= maxViewers {
		return nil, nil, false
	}
	c := make(chan struct{}, 1)
	r.viewers[c] = struct{}{}
	if !r.running {
		r.running = true
		go r.run()
	}
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.viewers, c)
	}, true
}

// run reads once a turn until nobody looks. That it ends and that a new viewer starts
// it again are decided under one lock, so no viewer is left without. The first turn is
// a second after the first viewer came, who has read by latest what there was.
func (r *reader) run() {
	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	for {
		select {
		case <-r.ctx.Done():
			return
		case <-ticker.C:
		}
		r.mu.Lock()
		if len(r.viewers) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		r.read(r.ctx)
		r.tell()
	}
}

// tell wakes all viewers, and waits for none of them.
func (r *reader) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.viewers {
		select {
		case c <- struct{}{}:
		default: // it is slow, and gets the newest when it comes
		}
	}
}

// latest is what was read within the last turn, or is read now. With half a turn more
// a viewer who was just woken, or loads a page between two turns, reads nothing. A
// turn that failed counts as read, so an outage is not asked about once a request.
func (r *reader) latest(ctx context.Context) *snapshot {
	if s := r.current(); s != nil && time.Since(s.At) < turn+turn/2 {
		return s
	}
	return r.read(ctx)
}

// current is the last snapshot, of whatever age, or nil.
func (r *reader) current() *snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.snap
}

// read makes a new snapshot. Of those who want one at the same time one reads, and the
// others wait and take what it has read. A viewer who leaves does not stop it, since
// others may wait; readTimeout does. Its result is never nil: where Redis cannot be
// read it has an Err and what was known before, as of the time that Redis had then.
// asynq's Inspector knows no timeout: the turn waits for its call that is underway,
// and with it all who need a new snapshot.
func (r *reader) read(ctx context.Context) *snapshot {
	before := r.current()
	r.reading.Lock()
	defer r.reading.Unlock()
	if now := r.current(); now != before {
		return now
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	s, err := r.state.read(ctx, r.page)
	if err != nil { // what was known stays on the page, which says that it is old
		s = &snapshot{Now: time.Now(), At: time.Now(), Err: err, views: map[string]*rendered{}}
		if before != nil {
			s.knowledge, s.Now = before.knowledge, before.Now
		}
	}
	r.mu.Lock()
	r.snap = s
	r.mu.Unlock()
	return s
}

// again has what was changed just now read at once, and shown: who pressed a button
// sees what it did when the page comes back, and all others with it.
func (r *reader) again() {
	r.reading.Lock()
	r.state.limitsAt, r.state.queuesAt, r.state.wantsAt, r.state.forecastAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	r.state.changed++
	r.reading.Unlock()
	r.read(r.ctx)
	r.tell()
}

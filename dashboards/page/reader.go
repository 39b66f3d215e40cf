package page

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

// How often what is read: fast what costs Redis next to nothing, and slowly what
// it has to look for.
const (
	turn        = time.Second
	queuesTurn  = 5 * time.Second
	limitsTurn  = 30 * time.Second // where nothing has changed
	wantsTurn   = 2 * time.Second
	surveyTurn  = 2 * time.Second
	wantsShare  = 200 // looking through what waits takes at most 1/200 of the time
	readTimeout = 5 * time.Second
)

// reader reads for all who look. It works only while somebody does, so an open page
// costs Redis the same whether one looks or hundreds, and a closed one nothing.
//
// reading guards state, which is what one turn leaves to the next. mu guards the
// rest and is never held while Redis is asked, so that a slow Redis keeps nobody
// from what was read before.
type reader struct {
	page *Page
	ctx  context.Context

	reading sync.Mutex // held while Redis is read
	state   state

	mu      sync.Mutex
	snap    *snapshot
	viewers map[chan struct{}]struct{}
	running bool
}

// state is what the reader knows from turn to turn: what is read more seldom than each
// second, and what adds up.
type state struct {
	changes int64 // as of the limits
	limits  []throttle.Limit
	blocks  map[string][]throttle.Blocked
	log     []throttle.Change
	wants   map[string]*wanted
	survey  history.Survey
	free    map[string]int // permits of the limits that had some in the last turn
	spared  map[string]int // for how many turns they had while jobs waited
	queues  queues
	history *series

	limitsAt, queuesAt, wantsAt, surveyAt time.Time // when each is to be read again
}

// newReader makes the reader of a page. It ends with ctx.
func newReader(ctx context.Context, p *Page) *reader {
	return &reader{page: p, ctx: ctx, viewers: map[chan struct{}]struct{}{}, state: state{history: newSeries(), changes: -1}}
}

// maxViewers bounds how many may look at once: each has a connection and a goroutine.
const maxViewers = 500

// watch has a viewer woken after each turn, until done is called. It reports false
// where too many look.
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
// it again are decided under one lock, so no viewer is left without.
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

// tell wakes all viewers.
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

// latest is what was read within the last turn, or is read now.
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
// read it has an Err and what was known before.
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

// again has what was changed just now read at once, and shown.
func (r *reader) again() {
	r.reading.Lock()
	r.state.limitsAt, r.state.queuesAt, r.state.wantsAt = time.Time{}, time.Time{}, time.Time{}
	r.reading.Unlock()
	r.read(r.ctx)
	r.tell()
}

package page

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/throttle"
)

// snapshot is all that was read in one turn. It does not change any more, but for the
// views that are made of it, each when the first viewer asks for it. So all who look at
// one place see the same, and it is made once.
type snapshot struct {
	knowledge
	At  time.Time // when it was read
	Now time.Time // Redis's time then
	Err error     // why it is older than it should be

	mu    sync.Mutex
	views map[string]*rendered
	said  rendered // the line about Redis, at the top
}

// status is the line about Redis for those who look on.
func (s *snapshot) status(p *Page) (event, error) {
	s.said.once.Do(func() {
		var out bytes.Buffer
		s.said.err = execute(&out, "limits", "status", frame{Page: p, Snap: s})
		s.said.event = newEvent("status", out.String())
	})
	return s.said.event, s.said.err
}

// knowledge is what a snapshot tells. Where the next turn cannot read, its snapshot has
// that of the one before.
type knowledge struct {
	Latency time.Duration
	Crowd   throttle.Crowd
	Limits  []limitRow
	Queues  queues
	Log     []throttle.Change
	Denials []denial
	Says    says
	wants   map[string]*wanted
}

// wanted is what waits for a limit.
type wanted struct {
	Keys    []throttle.Want // the most wanted first
	Slow    []throttle.Want // those of them, but for the first, whose last job may be the limit's last
	Permits int             // that are wanted in all
	Here    int             // of which at meters that a lane waits at
	Own     map[string]throttle.KeyState
}

// queues is what asynq says, with sums over all queues.
type queues struct {
	Infos             []*asynq.QueueInfo
	Running, Archived int
	Servers           int
}

// read asks Redis for what has changed or is due. It makes a whole snapshot or fails;
// what a turn that failed has read already is known to the next.
func (s *state) read(ctx context.Context, p *Page) (*snapshot, error) {
	start := time.Now()
	now, err := p.Redis.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	latency := time.Since(start)
	crowd, err := p.Limiter.Crowd(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.readLimits(ctx, p, crowd, start), s.readWants(ctx, p, crowd, start), s.readSurvey(ctx, p, start), s.readLog(ctx, p),
		s.readQueues(p, start), s.readHistory(ctx, p, now),
	)
	if err != nil {
		return nil, err
	}
	known := knowledge{
		Latency: latency, Crowd: crowd, Queues: s.queues, Log: s.log, wants: s.wants,
		Denials: slices.Clone(s.history.denials),
	}
	if known.Limits, err = s.rows(ctx, p, crowd.Jobs, now); err != nil {
		return nil, err
	}
	known.Says = summarize(known, now)
	return &snapshot{knowledge: known, At: time.Now(), Now: now.Local(), views: map[string]*rendered{}}, nil
}

// readLimits reads the limits and their blocks where any has changed: a
// round trip or two for each limit, which is why it is not done each second.
func (s *state) readLimits(ctx context.Context, p *Page, crowd throttle.Crowd, now time.Time) error {
	if s.changes == crowd.Changes && now.Before(s.limitsAt) {
		return nil
	}
	limits, err := p.Limiter.Limits(ctx)
	if err != nil {
		return err
	}
	blocks := map[string][]throttle.Blocked{}
	for _, l := range limits {
		if blocks[l.Name], err = p.Limiter.Blocks(ctx, l.Name); err != nil {
			return err
		}
	}
	s.limits, s.blocks, s.changes, s.limitsAt = limits, blocks, crowd.Changes, now.Add(limitsTurn)
	return nil
}

// readLog reads the changelog where it has something new.
func (s *state) readLog(ctx context.Context, p *Page) error {
	last, err := p.Limiter.Changes(ctx, 1)
	if err != nil || len(last) == 0 || len(s.log) > 0 && s.log[0].ID == last[0].ID {
		return err
	}
	s.log, err = p.Limiter.Changes(ctx, 500)
	return err
}

// readWants looks through what waits, the more seldom the longer that takes.
func (s *state) readWants(ctx context.Context, p *Page, crowd throttle.Crowd, now time.Time) error {
	if crowd.Jobs == 0 {
		s.wants, s.wantsAt = nil, time.Time{}
		return nil
	}
	if now.Before(s.wantsAt) {
		return nil
	}
	start := time.Now()
	wants, err := p.Limiter.Wants(ctx)
	if err != nil {
		return err
	}
	s.wants = byLimit(wants, crowd.Turns)
	for _, l := range s.limits {
		if w := s.wants[l.Name]; w != nil {
			own, err := p.Limiter.Keys(ctx, l.Name)
			if err != nil {
				return err
			}
			w.slowest(l, own, s.blocks[l.Name])
		}
	}
	s.wantsAt = now.Add(max(wantsTurn, wantsShare*time.Since(start)))
	return nil
}

// slowest finds the keys that go on longest. All go by the limit's rate but those
// that have one of their own, or are blocked for a while: so what is most wanted of
// each kind is enough.
func (w *wanted) slowest(l throttle.Limit, own []throttle.KeyState, blocks []throttle.Blocked) {
	w.Own = map[string]throttle.KeyState{}
	for _, k := range own {
		w.Own[k.Key] = k
	}
	shut := map[string]time.Duration{}
	for _, b := range blocks {
		shut[b.Key] = b.For
	}
	lasts := func(want throttle.Want) (seconds float64) {
		rate, share := l.Rate, 1.0
		if k, differs := w.Own[want.Key]; differs {
			rate, share = l.With(k.Override).Rate, max(k.Share, 0.001)
		}
		return shut[want.Key].Seconds() + float64(want.Permits)*rate.Per.Seconds()/float64(max(1, rate.N))/share
	}
	var slow []throttle.Want
	for _, want := range w.Keys[min(busiest, len(w.Keys)):] {
		_, differs := w.Own[want.Key]
		if differs || shut[want.Key] > 0 {
			slow = append(slow, want)
		}
	}
	slices.SortFunc(slow, func(a, b throttle.Want) int { return cmp.Compare(lasts(b), lasts(a)) })
	w.Slow = slow[:min(busiest, len(slow))]
}

// readSurvey reads since when what waits has waited, as some process of the scope
// has found a while ago.
func (s *state) readSurvey(ctx context.Context, p *Page, now time.Time) error {
	if now.Before(s.surveyAt) {
		return nil
	}
	survey, err := history.ReadSurvey(ctx, p.Redis, p.Scope)
	if err != nil || survey == nil {
		survey = &history.Survey{}
	}
	s.survey, s.surveyAt = *survey, now.Add(surveyTurn)
	return err
}

// byLimit sorts what waits. Where nobody gives turns no meter is marked, so what
// waits counts for all its limits.
func byLimit(wants []throttle.Want, turns bool) map[string]*wanted {
	limits := map[string]*wanted{}
	for _, w := range wants {
		of := limits[w.Limit]
		if of == nil {
			of = &wanted{}
			limits[w.Limit] = of
		}
		of.Keys = append(of.Keys, w)
		of.Permits += w.Permits
		if w.Here || !turns {
			of.Here += w.Permits
		}
	}
	for _, of := range limits {
		slices.SortFunc(of.Keys, func(a, b throttle.Want) int {
			return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
		})
	}
	return limits
}

// readQueues asks asynq for its queues and servers, with some round trips for each
// queue. A queue that was removed meanwhile is left out.
func (s *state) readQueues(p *Page, now time.Time) error {
	if now.Before(s.queuesAt) {
		return nil
	}
	names, err := p.inspector.Queues()
	if err != nil {
		return err
	}
	slices.Sort(names)
	var q queues
	for _, name := range names {
		info, err := p.inspector.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		q.Infos = append(q.Infos, info)
		q.Running += info.Active
		q.Archived += info.Archived
	}
	servers, err := p.inspector.Servers()
	if err != nil {
		return err
	}
	q.Servers = len(servers)
	s.queues, s.queuesAt = q, now.Add(queuesTurn)
	return nil
}

// readHistory reads what the processes have said since the last turn. In the first it
// reads 15 minutes at once, so that a curve is there as soon as somebody looks.
func (s *state) readHistory(ctx context.Context, p *Page, now time.Time) error {
	if s.history.since == "" { // nothing older is shown
		s.history.since = history.StreamID(now.Add(-parts * part))
	}
	news, err := history.Read(ctx, p.Redis, p.Scope, s.history.since)
	if err != nil {
		return err
	}
	s.history.move(now)
	for _, n := range news {
		s.history.since = n.ID
		for name, l := range n.Limits {
			s.history.add(n.At, name, tally{int(l.Permits), int(l.Allowed), int(l.Denied)})
			if d := l.Denial; d != nil {
				s.history.deny(denial{n.At, name, d.Key, d.Queue, d.ID, d.RetryAfter})
			}
		}
	}
	return nil
}

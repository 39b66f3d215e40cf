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
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

// snapshot is all that was read in one turn. It does not change any more, but for the
// views that are made of it, each when the first viewer asks for it. So all who look at
// one place see the same, and it is made once.
type snapshot struct {
	knowledge
	// At is when it was read, by this process's clock, which says whether it is old.
	At time.Time
	// Now is Redis's time then, in this process's zone. All that is told in times or
	// spans goes by it: limits are counted, and jobs wait, by Redis's clock.
	Now time.Time
	// Err is why it is older than it should be; nil where it is not.
	Err error
	// changed counts the changes made on this page before it was read: what views read
	// beside an older one is not taken for this.
	changed int

	mu sync.Mutex
	// views are what was made of it, by place. They go with the snapshot, so those of
	// odd queries do not pile up.
	views map[string]*rendered
	said  rendered // the line about Redis, at the top
}

// status is the line about Redis for those who look on. It is the same for every place,
// and of a template that all pages have: limits is any one of them.
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
	// Latency is how long Redis took to tell its time: the way there and back, and
	// what it was busy with.
	Latency time.Duration
	Crowd   crowd
	Limits  []limitRow // what most waits for first
	Queues  queues
	Log     []throttle.Change // the newest first, some 500
	Denials []denial          // the newest first, some of the last
	// Says is the answer above all tables, made of the rest.
	Says says
	// wants is by limit. Views look keys up in it, and templates do not see it.
	wants map[string]*wanted
	// forecast is when those run that wait; nil where nothing does.
	forecast *lanes.Forecast
}

// crowd is how many jobs wait or are called, in how many lanes, and whether anybody gives
// turns.
type crowd struct {
	Jobs, Lanes int
	Turns       bool
}

// wanted is what waits for a limit, in permits. Those of called jobs do not count: they are
// reserved.
type wanted struct {
	inspect.Wanted
	Keys []lanes.Want // the most wanted first
	// Own are the keys of which anything differs from the limit: a rate that somebody
	// said, or what refusals have taught.
	Own map[string]throttle.KeyState
}

// queues is what asynq says, with sums over all queues. Its numbers are up to five
// seconds old.
type queues struct {
	Infos             []inspect.QueueInfo // by name
	Running, Archived int                 // jobs
	Servers           int                 // processes with an asynq server, of any scope
}

// read asks Redis for what has changed or is due. It makes a whole snapshot or fails;
// what a turn that failed has read already is known to the next.
//
// The time is asked for first: where Redis is away the turn ends there. How many wait
// comes next, and the newest line of the changelog, which tells whether any limit has
// changed, so most turns need not ask about limits. All but the queues is of the
// limiter's scope.
func (s *state) read(ctx context.Context, p *Page) (*snapshot, error) {
	start := time.Now()
	now, err := p.Redis.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	latency := time.Since(start)
	// One pipeline, and O(1) of Redis's time however many wait.
	var crowd crowd
	crowd.Jobs, crowd.Lanes, crowd.Turns, err = p.Limiter.Crowd(ctx)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.readLog(ctx, p), s.readLimits(ctx, p, start), s.readForecast(ctx, p, crowd, start), s.readWants(ctx, p, crowd, start), s.readSurvey(ctx, p, start),
		s.readQueues(ctx, p, crowd, start), s.readHistory(ctx, p, now),
	)
	if err != nil {
		return nil, err
	}
	known := knowledge{
		Latency: latency, Crowd: crowd, Queues: s.queues, Log: s.log, wants: s.wants, forecast: s.known.Forecast,
		Denials: slices.Clone(s.history.denials),
	}
	if known.Limits, err = s.rows(ctx, p, crowd.Jobs, now); err != nil {
		return nil, err
	}
	known.Says = summarize(known, now)
	return &snapshot{knowledge: known, At: time.Now(), Now: now.Local(), changed: s.changed, views: map[string]*rendered{}}, nil
}

// readLimits reads the limits and their blocks where the changelog says that any has
// changed: with some round trips for each, which is why it is not done each second.
func (s *state) readLimits(ctx context.Context, p *Page, now time.Time) error {
	if now.Before(s.limitsAt) {
		return nil
	}
	read := inspect.Known{}
	if err := read.ReadLimits(ctx, p.Limiter); err != nil {
		return err
	}
	s.known.Limits, s.known.Blocks, s.limitsAt = read.Limits, read.Blocks, now.Add(limitsTurn)
	return nil
}

// readLog reads the changelog where it has something new: its newest entry in each
// turn, and as much as Redis remembers, some 500 entries, where that is another one. All
// that changes limits stands there, in the same step: so they are due then, too. A
// changelog that Redis has lost is lost here.
func (s *state) readLog(ctx context.Context, p *Page) error {
	last, err := p.Limiter.Changes(ctx, 1)
	if err != nil || newest(last) == newest(s.log) {
		return err
	}
	// Due in any case: the next turn would find nothing new if the rest failed.
	s.limitsAt = time.Time{}
	s.log, err = p.Limiter.Changes(ctx, 500)
	return err
}

// newest is the ID of the first entry of a changelog; empty where there is none.
func newest(log []throttle.Change) string {
	if len(log) == 0 {
		return ""
	}
	return log[0].ID
}

// readWants looks through what waits, the more seldom the longer that takes: a round
// trip for each thousand meters that are wanted, and one to three for each limit. What
// took 50 ms is next read after 10 s; until then the numbers of keys stand still, while
// that of all jobs does not. Where nothing waits it asks nothing.
func (s *state) readWants(ctx context.Context, p *Page, crowd crowd, now time.Time) error {
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
	for i, w := range wants {
		wants[i].Here = w.Here || s.known.Forecast != nil && s.known.Forecast.Binds(w.Limit, w.Key)
	}
	s.wants = byLimit(wants, crowd.Turns)
	for _, l := range s.known.Limits {
		if w := s.wants[l.Name]; w != nil {
			own, err := p.Limiter.Keys(ctx, l.Name)
			if err != nil {
				return err
			}
			w.Own = map[string]throttle.KeyState{}
			for _, k := range own {
				w.Own[k.Key] = k
			}
		}
	}
	// A turn that failed above does not come here: the next one tries again.
	s.wantsAt = now.Add(max(wantsTurn, wantsShare*time.Since(start)))
	return nil
}

// readForecast has a forecast made, the more seldom the longer that takes, as the wants
// are read.
func (s *state) readForecast(ctx context.Context, p *Page, crowd crowd, now time.Time) error {
	if crowd.Jobs == 0 {
		s.known.Forecast, s.forecastAt = nil, time.Time{}
		return nil
	}
	if now.Before(s.forecastAt) {
		return nil
	}
	start := time.Now()
	forecast, err := history.Forecast(ctx, p.Limiter, p.Redis, lanes.ForecastOptions{})
	if err != nil {
		return err
	}
	s.known.Forecast, s.forecastAt = forecast, now.Add(max(forecastTurn, forecastShare*time.Since(start)))
	return nil
}

// readSurvey reads since when what waits has waited, as some process of the scope
// has found a while ago: to find it out means to read all jobs, which one process does
// for all. Where no process has for a minute, since when is not told.
func (s *state) readSurvey(ctx context.Context, p *Page, now time.Time) error {
	if now.Before(s.surveyAt) {
		return nil
	}
	survey, err := history.ReadSurvey(ctx, p.Redis, p.Scope)
	s.known.Survey, s.surveyAt = survey, now.Add(surveyTurn)
	return err
}

// byLimit sorts what waits, by permits and then by name, so that keys which are wanted
// alike keep their places from turn to turn. Where nobody gives turns no meter is
// marked, so what waits counts for all its limits.
func byLimit(wants []lanes.Want, turns bool) map[string]*wanted {
	limits := map[string]*wanted{}
	for _, w := range wants {
		of := limits[w.Limit]
		if of == nil {
			of = &wanted{}
			limits[w.Limit] = of
		}
		of.Keys = append(of.Keys, w)
		of.All += w.Permits
		if w.Here || !turns {
			of.Waiting += w.Permits
		}
	}
	for _, of := range limits {
		slices.SortFunc(of.Keys, func(a, b lanes.Want) int {
			return cmp.Or(cmp.Compare(b.Permits, a.Permits), strings.Compare(a.Key, b.Key))
		})
		of.Wanted.Keys = len(of.Keys)
		for _, k := range of.Keys[:min(len(of.Keys), inspect.Busiest)] {
			of.Busiest = append(of.Busiest, k.Key)
		}
	}
	return limits
}

// readQueues asks asynq for its queues and servers, with three round trips for each
// queue, and two for each server. How many of a queue's jobs wait is as the forecast has
// it: the numbers of all lanes, or of those that were looked at as a sample. A queue that was
// removed meanwhile is left out. The Inspector takes no context: see readTimeout.
func (s *state) readQueues(ctx context.Context, p *Page, crowd crowd, now time.Time) error {
	if now.Before(s.queuesAt) {
		return nil
	}
	waiting, jobs := map[string]int{}, 0
	if s.known.Forecast != nil {
		waiting, jobs = s.known.Forecast.Waiting(), s.known.Forecast.Jobs
	}
	names, err := p.queues.Names(ctx, "")
	if err != nil {
		return err
	}
	var q queues
	for _, name := range names {
		info, err := p.queues.Inspector.GetQueueInfo(name)
		if errors.Is(err, asynq.ErrQueueNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		waits := waiting[name] * crowd.Jobs / max(1, jobs)
		info.Retry = max(0, info.Retry-waits)
		q.Infos = append(q.Infos, inspect.QueueInfo{QueueInfo: info, Waiting: waits})
		q.Running += info.Active
		q.Archived += info.Archived
	}
	servers, err := p.queues.Inspector.Servers()
	if err != nil {
		return err
	}
	q.Servers = len(servers)
	s.queues, s.queuesAt = q, now.Add(queuesTurn)
	return nil
}

// readHistory reads what the processes have said since the last turn. In the first it
// reads 15 minutes at once, so that a curve is there as soon as somebody looks. So it
// does after a time in which nobody looked: the stream itself goes no further back
// than 16 minutes. One round trip brings a thousand summaries, of which a process
// writes one a second at most.
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
		// One written since Redis told its time may begin the next part.
		if n.At.After(now) && n.At.Before(now.Add(part)) {
			s.history.move(n.At)
		}
		// The next turn begins after it, so nothing counts twice.
		s.history.since = n.ID
		if n.At.After(now.Add(-inspect.Recent)) {
			s.history.recent = append(s.history.recent, n)
		}
		for name, l := range n.Limits {
			s.history.add(n.At, name, tally{int(l.Permits), int(l.Allowed), int(l.Denied)})
			if d := l.Denial; d != nil {
				s.history.deny(denial{n.At, name, *d})
			}
		}
	}
	return nil
}

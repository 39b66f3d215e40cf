package history

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/scheduler/lanes"
	"github.com/headgate/headgate/throttle"
)

const (
	// surveyEach is how often what waits is looked at, by one process of a scope,
	// and surveyIdle while that process decides nothing. surveyPages is how many
	// pages of a thousand jobs that reads at a time: a hundred thousand jobs are
	// surveyed within half a minute, at less than 1 % of a core of Redis.
	surveyEach  = 5 * time.Second
	surveyIdle  = 20 * time.Second
	surveyPages = 20
	// surveyLife is how long a survey, and the claim to make it, lives.
	surveyLife = time.Minute
	claimLife  = surveyIdle + 2*surveyEach
	// maxLooked bounds the marked meters of limits without keys that are looked at.
	maxLooked = 100
	// maxMeters bounds the meters that a survey counts, and maxBusiest those that
	// it names of each limit.
	maxMeters  = 200_000
	maxBusiest = 10
)

// lookAround goes on with a survey, if this is the process that makes it and
// anything may have changed: the one that gives turns, or where that is left to asynq's
// polls the one that has claimed it. What Redis does not answer is asked again the next time.
func (r *Recorder) lookAround(ctx context.Context) {
	s := &r.survey
	if !r.Leads.Load() && !r.Polling.Load() {
		*s = surveyor{}
		return
	}
	decided, _, _ := r.Calls.Snapshot()
	if s.Limits == nil && decided == s.decided && time.Since(s.looked) < surveyIdle {
		return
	}
	s.decided, s.looked = decided, time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if done, err := r.goOn(ctx); done || err != nil {
		*s = surveyor{decided: s.decided, looked: s.looked}
	}
}

// goOn counts some pages of the jobs that wait, and reports whether nothing is left to do.
func (r *Recorder) goOn(ctx context.Context) (done bool, err error) {
	s := &r.survey
	if mine, err := r.claimSurvey(ctx); err != nil || !mine {
		return true, err
	}
	if s.Limits == nil {
		if err := r.readMarks(ctx); err != nil {
			return false, err
		}
		s.Limits, s.meters = map[string]Waiting{}, map[string]int{}
	}
	for range surveyPages {
		var fields []string
		fields, s.cursor, err = r.rdb.HScan(ctx, r.prefix+"jobs", s.cursor, "", 1000).Result()
		if err != nil {
			return false, err
		}
		for i := 1; i < len(fields); i += 2 {
			s.count(fields[i])
		}
		if s.cursor == 0 {
			return true, r.publish(ctx)
		}
	}
	return false, nil
}

// readMarks notes at which meters lanes wait, or will: a day's limit holds jobs up that
// is not used up yet. A limit without keys that has permits, and will, is not what its
// jobs wait for: they need another one, too.
func (r *Recorder) readMarks(ctx context.Context) error {
	_, scope := r.Redis()
	limiter := lanes.New(throttle.New(r.rdb, throttle.RedisOptions{Scope: scope}))
	s := &r.survey
	if err := r.readPending(ctx, limiter); err != nil {
		return err
	}
	forecast, err := Forecast(ctx, limiter, r.Queues, s.Pending, lanes.ForecastOptions{})
	if err != nil {
		return err
	}
	s.foretell(forecast)
	marked, looked := map[string]bool{}, []throttle.Need(nil)
	for _, n := range forecast.Binding() {
		marked[n.Limit+"|"+n.Key] = true
	}
	scan := r.rdb.HScan(ctx, r.prefix+"contended", 0, "", 1000).Iterator()
	for scan.Next(ctx) && len(marked) < maxMeters {
		meter := scan.Val()
		scan.Next(ctx) // the number of a lane
		if limit, key, _ := strings.Cut(meter, "|"); key == "" && !marked[meter] && len(looked) < maxLooked {
			looked = append(looked, throttle.Need{Limit: limit})
		}
		marked[meter] = true
	}
	if err := scan.Err(); err != nil {
		return err
	}
	meters, err := limiter.Look(ctx, looked...)
	for _, m := range meters {
		if !m.Shut && m.Left > m.Reserved {
			delete(marked, m.Limit+"|")
		}
	}
	s.marked = marked
	return err
}

// readPending looks at the jobs that have not asked yet, by the rules of this process.
func (r *Recorder) readPending(ctx context.Context, limiter *lanes.Lanes) (err error) {
	queues, rule := r.Queues, r.RuleOf
	if queues == nil {
		queues = r.rdb
	}
	if time.Now().Before(r.rulesRest) {
		rule = nil
	}
	pending, err := ReadPending(ctx, queues, limiter, r.Serves, rule)
	if pending.slow {
		r.rulesRest = time.Now().Add(rulesRest)
	}
	pending.bound()
	r.survey.Pending = pending
	return err
}

// foretell notes when the last jobs run.
func (s *surveyor) foretell(f *lanes.Forecast) {
	s.Lasts, s.Unknown = map[string]time.Time{}, nil
	limits := f.Limits()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		switch last := limits[name]; {
		case len(s.Lasts)+len(s.Unknown) == maxNames:
			return
		case last.Known:
			s.Lasts[Label(name)] = f.At.Add(last.In)
		default:
			s.Unknown = append(s.Unknown, Label(name))
		}
	}
}

// claimSurvey reports whether this process is to make surveys.
func (r *Recorder) claimSurvey(ctx context.Context) (bool, error) {
	if r.Leads.Load() {
		return true, nil
	}
	key := r.prefix + "surveyor"
	if err := r.rdb.SetNX(ctx, key, r.process, claimLife).Err(); err != nil {
		return false, err
	}
	holder, err := r.rdb.Get(ctx, key).Result()
	if err != nil || holder != r.process {
		return false, err
	}
	return true, r.rdb.PExpire(ctx, key, claimLife).Err()
}

// count adds a job by its record: since when it waits is its second line, and its
// lane, which is a queue and its meters, from the sixth on.
func (s *surveyor) count(record string) {
	lines := strings.Split(record, "\n")
	if len(lines) < 7 {
		return
	}
	us, _ := strconv.ParseInt(lines[1], 10, 64)
	since, last := time.UnixMicro(us), ""
	for _, meter := range s.waitsAt(lines[6:]) {
		limit, _, _ := strings.Cut(meter, "|")
		if limit = Label(limit); len(s.Limits) >= maxNames && s.Limits[limit].Jobs == 0 {
			limit = Other
		}
		if s.meters[meter] > 0 || len(s.meters) < maxMeters {
			s.meters[meter]++
		}
		if limit == last { // another key of the same
			continue
		}
		last = limit
		w := s.Limits[limit]
		if w.Jobs++; w.Oldest.IsZero() || since.Before(w.Oldest) {
			w.Oldest = since
		}
		s.Limits[limit] = w
	}
}

// waitsAt is those of a job's meters at which a lane waits, or all.
func (s *surveyor) waitsAt(meters []string) []string {
	at := slices.DeleteFunc(slices.Clone(meters), func(meter string) bool { return !s.marked[meter] })
	if len(at) == 0 {
		return meters
	}
	return at
}

func (r *Recorder) publish(ctx context.Context) error {
	s := &r.survey
	s.busiest()
	var err error
	if s.At, err = r.rdb.Time(ctx).Result(); err != nil {
		return err
	}
	text, err := json.Marshal(s.Survey)
	if err == nil {
		err = r.rdb.Set(ctx, r.prefix+"survey", text, surveyLife).Err()
	}
	if err != nil {
		r.Unwritten.Add(1)
	}
	return err
}

// busiest tells of each limit how many keys anything waits for, and at which most.
func (s *surveyor) busiest() {
	meters := slices.SortedFunc(maps.Keys(s.meters), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.meters[b], s.meters[a]), cmp.Compare(a, b))
	})
	for _, meter := range meters {
		limit, key, _ := strings.Cut(meter, "|")
		w, named := s.Limits[limit]
		if !named {
			continue
		}
		if w.Keys++; len(w.Busiest) < maxBusiest {
			w.Busiest = append(w.Busiest, Backed{key, s.meters[meter]})
		}
		s.Limits[limit] = w
	}
}

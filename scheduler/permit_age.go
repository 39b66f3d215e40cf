package scheduler

import (
	"sync"
	"time"

	"github.com/headgate/headgate/internal/waitdb"
)

const (
	// maxPermitAge is the maximum age of permits when the handler starts, because the limiter
	// counts them at the time of the request. For windows it is waitdb.MaxWindowAge.
	maxPermitAge = 100 * time.Millisecond
	// lateRounds is the number of rounds in a row without a start in time, after which the allowed
	// age doubles.
	lateRounds = 3
	// slowTime is how long the allowed age stays above waitdb.MaxWindowAge after the last late job.
	slowTime = time.Minute
)

// permitAge finds the jobs whose permits of a window are too old. On a slow machine no permits may
// be as young as waitdb.MaxWindowAge when the handler starts. So that jobs run there, too, the allowed
// age doubles while no job starts in time, up to maxPermitAge. A permitAge is safe for concurrent
// use.
type permitAge struct {
	mu        sync.Mutex
	raised    time.Duration // the allowed age; zero means waitdb.MaxWindowAge
	rounds    int           // rounds in a row in which a job was late and no job started in time
	countedAt time.Time     // when the last of these rounds was counted
	lateAt    time.Time     // when a job was late last
	hasGrown  bool          // whether the allowed age has ever grown
}

// check reports whether permits of this age, which were taken at that time, are too old to start
// the handler now. The result hasGrown is true if the allowed age grows for the first time.
func (p *permitAge) check(takenAt time.Time, age time.Duration) (tooOld, hasGrown bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.lateAt) > slowTime {
		p.raised, p.rounds = 0, 0
	}
	allowed := max(waitdb.MaxWindowAge, p.raised)
	isNewRound := takenAt.After(p.countedAt) // one pause of the process makes many jobs late, and is one round
	if age <= allowed {
		if isNewRound {
			p.rounds = 0
		}
		return false, false
	}
	p.lateAt = now
	if isNewRound {
		p.rounds, p.countedAt = p.rounds+1, now
	}
	if p.rounds < lateRounds || allowed == maxPermitAge {
		return true, false
	}
	hasGrown, p.hasGrown = !p.hasGrown, true
	p.rounds, p.raised = 0, min(2*allowed, maxPermitAge)
	return true, hasGrown
}

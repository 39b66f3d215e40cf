package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/throttle"
)

// spec is a backlog and the limits it runs under.
type spec struct {
	Jobs        int
	Rate        int // permits a second
	Capacity    int
	Strict      bool // at most Rate in any second, instead of a funnel
	Hosts       int  // 0 where there is only the one limit
	HostRate    int  // permits a second of each host, one at a time
	Arrive      int  // jobs enqueued a second while it runs; 0 is all before
	Concurrency int
	Waiting     int // jobs that bytes per waiting job are measured with; 0 is not
}

// job is what a queued job carries.
type job struct {
	Number int    `json:"job"`
	Host   string `json:"host,omitempty"`
}

// jobs are the same in every run.
func (s spec) jobs() []job {
	random := rand.New(rand.NewPCG(1, 2))
	jobs := make([]job, s.Jobs)
	for i := range jobs {
		jobs[i].Number = i
		if s.Hosts > 0 {
			jobs[i].Host = fmt.Sprintf("host-%d", random.IntN(s.Hosts))
		}
	}
	return jobs
}

// The names of the limits.
const (
	shared  = "shared"
	perHost = "per-host"
)

// limit is the one that all jobs share.
func (s spec) limit() throttle.Limit {
	if s.Strict {
		return throttle.Limit{Name: shared, Kind: throttle.SlidingLog, Rate: throttle.PerSecond(s.Rate)}
	}
	return throttle.Limit{Name: shared, Kind: throttle.Funnel, Rate: throttle.PerSecond(s.Rate), Capacity: s.Capacity}
}

// hostLimit is the one that each host has for itself.
func (s spec) hostLimit() throttle.Limit {
	return throttle.Limit{Name: perHost, Kind: throttle.Funnel, Rate: throttle.PerSecond(s.HostRate), Capacity: 1}
}

// limits are all of them.
func (s spec) limits() []throttle.Limit {
	if s.Hosts > 0 {
		return []throttle.Limit{s.limit(), s.hostLimit()}
	}
	return []throttle.Limit{s.limit()}
}

// burst is how many permits the shared limit has at the start.
func (s spec) burst() int {
	if s.Strict {
		return s.Rate
	}
	return s.Capacity
}

// ideal is the shortest time in which the limits let all jobs start.
func (s spec) ideal() time.Duration {
	after := func(permits, rate int) time.Duration {
		return time.Duration(max(0, permits)) * time.Second / time.Duration(rate)
	}
	ideal := after(s.Jobs-s.burst(), s.Rate)
	if s.Strict { // all permits of a second come at its start
		ideal = time.Duration((s.Jobs-1)/s.Rate) * time.Second
	}
	if s.Arrive > 0 {
		ideal = max(ideal, after(s.Jobs, s.Arrive))
	}
	if s.Hosts > 0 {
		ideal = max(ideal, s.equalTurns())
	}
	return ideal
}

// equalTurns is how long the jobs take if the hosts have their turns at the shared
// limit one after the other and nothing else takes time. The host that had its
// turn longest ago is also the first that may have the next.
func (s spec) equalTurns() time.Duration {
	var hosts []string // that have jobs left, in the order of their last turns
	left, ready := map[string]int{}, map[string]time.Duration{}
	for _, j := range s.jobs() {
		if left[j.Host]++; left[j.Host] == 1 {
			hosts = append(hosts, j.Host)
		}
	}
	every := time.Second / time.Duration(s.Rate)
	var last, tat time.Duration
	for len(hosts) > 0 {
		host := hosts[0]
		hosts = hosts[1:]
		last = max(tat-time.Duration(s.burst()-1)*every, ready[host], last)
		tat = max(tat, last) + every
		ready[host] = last + time.Second/time.Duration(s.HostRate)
		if left[host]--; left[host] > 0 {
			hosts = append(hosts, host)
		}
	}
	return last
}

// inTime is the share of the jobs that started within 1.01 times the permits' own
// time: that in which the shared limit has one for each. In equal turns some start
// later, where the last hosts with jobs cannot use what is there.
func (s spec) inTime(begin int64, starts []start) float64 {
	s.Hosts = 0
	by := begin + s.ideal().Microseconds()*101/100
	n := 0
	for _, st := range starts {
		if st.started <= by {
			n++
		}
	}
	return float64(n) / float64(s.Jobs)
}

// patience is how long a run may take: what has not run by then would only
// tell the same.
func (s spec) patience() time.Duration { return time.Minute + 30*s.ideal() }

// String is the case as tables name it.
func (s spec) String() string {
	text := fmt.Sprintf("%s jobs, %s/s", thousands(s.Jobs), thousands(s.Rate))
	if s.Strict {
		text += " strict"
	} else {
		text += fmt.Sprintf(", capacity %d", s.Capacity)
	}
	if s.Hosts > 0 {
		text += fmt.Sprintf(", %d hosts at %d/s", s.Hosts, s.HostRate)
	}
	if s.Arrive > 0 {
		text += fmt.Sprintf(", arriving at %d/s", s.Arrive)
	}
	return text
}

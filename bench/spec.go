package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/internal/display"
	"github.com/headgate/headgate/throttle"
)

// spec is a backlog and its limits.
type spec struct {
	Jobs        int  `default:"10000" help:"How many jobs."`
	Rate        int  `default:"200" help:"Permits a second of the limit that all share."`
	Capacity    int  `default:"10" help:"Permits of that limit that can be taken at once."`
	Strict      bool `help:"At most the rate in any second (sliding_log), in place of a funnel with a capacity."`
	Hosts       int  `help:"Hosts that the jobs are for, at random. Each has a limit of its own under the shared one."`
	HostRate    int  `default:"1" help:"Permits a second of each host, one at a time."`
	Arrive      int  `help:"Jobs enqueued a second during the run. With 0 all jobs are enqueued before the run."`
	Concurrency int  `default:"10" help:"Jobs that each worker runs at once."`
	Waiting     int  `default:"10000" help:"Jobs with which bytes per waiting job are measured; 0 leaves that out."`
}

// job is the payload of a job.
type job struct {
	Number int    `json:"job"`
	Host   string `json:"host,omitempty"`
}

// jobs returns the same jobs in every run.
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

// limit returns the limit that all jobs share.
func (s spec) limit() throttle.Limit {
	if s.Strict {
		return throttle.Limit{Name: shared, Kind: throttle.SlidingLog, Rate: throttle.PerSecond(s.Rate)}
	}
	return throttle.Limit{Name: shared, Kind: throttle.Funnel, Rate: throttle.PerSecond(s.Rate), Capacity: s.Capacity}
}

// hostLimit returns the limit that each host has.
func (s spec) hostLimit() throttle.Limit {
	return throttle.Limit{Name: perHost, Kind: throttle.Funnel, Rate: throttle.PerSecond(s.HostRate), Capacity: 1}
}

// limits returns all limits.
func (s spec) limits() []throttle.Limit {
	if s.Hosts > 0 {
		return []throttle.Limit{s.limit(), s.hostLimit()}
	}
	return []throttle.Limit{s.limit()}
}

// burst returns how many permits the shared limit has at the start.
func (s spec) burst() int {
	if s.Strict {
		return s.Rate
	}
	return s.Capacity
}

// ideal returns the shortest time in which the limits let all jobs start.
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

// equalTurns returns how long the jobs take if the hosts take turns at the shared limit and nothing
// else takes time. The host with the oldest turn is also the first that can have another turn.
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

// patience is how long a run may take.
func (s spec) patience() time.Duration { return time.Minute + 30*s.ideal() }

// String returns the case for tables.
func (s spec) String() string {
	text := fmt.Sprintf("%s jobs, %s/s", display.Number(s.Jobs), display.Number(s.Rate))
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

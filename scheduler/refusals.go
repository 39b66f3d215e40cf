package scheduler

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
)

// mostRefusals is how many refusals of a job in a row are no failed attempts, although the upstream
// serves other jobs.
const mostRefusals = 2

// refusals are the rate limits that the upstream has answered to a job in a row.
type refusals struct {
	count int
	last  time.Time // by the limiter's clock
	alone bool      // whether the upstream has served other jobs meanwhile
}

// refusalsOf reads the header of a job's task.
func refusalsOf(j job, headers map[string]string) (r refusals) {
	var us int64
	if _, err := fmt.Sscanf(asynqdb.JobHeader(j, headers, asynqdb.HeaderRefusals), "%d %d %t", &r.count, &us, &r.alone); err != nil || r.count <= 0 {
		return refusals{}
	}
	r.last = time.UnixMicro(us)
	return r
}

// withRefusals returns the job's encoded message with the refusals in its header.
func (a *attempt) withRefusals(r refusals, msg []byte) []byte {
	if r == refusalsOf(a.JobID, a.task.Headers()) {
		return msg
	}
	return asynqdb.WithJobHeader(a.JobID, msg, asynqdb.HeaderRefusals, fmt.Sprintf("%d %d %t", r.count, r.last.UnixMicro(), r.alone))
}

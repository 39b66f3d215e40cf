package scheduler

import (
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/asynqdb"
)

const (
	// mostRefusals is how many refusals of a job in a row are no failed attempts, although the upstream
	// serves other jobs.
	mostRefusals = 2
	// refusalsHeader is the header with the refusals of a job in a row.
	refusalsHeader = "headgate-refused"
)

// refusals are the rate limits that the upstream has answered to a job in a row.
type refusals struct {
	count int
	last  time.Time // by the limiter's clock
	alone bool      // whether the upstream has served other jobs meanwhile
}

// refusalsOf reads the header of a job's task.
func refusalsOf(task *asynq.Task) (r refusals) {
	text, ok := task.Headers()[refusalsHeader]
	if !ok {
		return refusals{}
	}
	var us int64
	if _, err := fmt.Sscanf(text, "%d %d %t", &r.count, &us, &r.alone); err != nil || r.count <= 0 {
		return refusals{}
	}
	r.last = time.UnixMicro(us)
	return r
}

// writeTo returns a job's encoded message with the header.
func (r refusals) writeTo(msg []byte) []byte {
	return asynqdb.WithHeader(msg, refusalsHeader, fmt.Sprintf("%d %d %t", r.count, r.last.UnixMicro(), r.alone))
}

// Refusals returns how often the upstream has answered with a rate limit to a job in a row, from the
// headers of its task: see RateLimited.
func Refusals(headers map[string]string) int {
	return refusalsOf(asynq.NewTaskWithHeaders("", nil, headers)).count
}

package asynqdb

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/throttle"
)

// The headers of a job that people see.
const (
	HeaderBatch    = "headgate-batch"   // the job's batch
	HeaderRefusals = "headgate-refused" // how often the upstream has refused the job in a row, and more
)

// JobHeader returns the text of a header that WithJobHeader wrote for the job, or "". It ignores the
// header of another job, because a handler may copy headers to a new task.
func JobHeader(j throttle.JobID, headers map[string]string, header string) string {
	text, name, _ := strings.Cut(headers[header], "\n")
	if name != j.Queue+"\n"+j.ID {
		return ""
	}
	return text
}

// WithJobHeader returns a job's encoded message with a header that holds for this job alone. The text
// has no line break.
func WithJobHeader(j throttle.JobID, msg []byte, header, text string) []byte {
	return WithHeader(msg, header, JobHeaderValue(j, text))
}

// JobHeaderValue returns the value of a header with a text that holds for this job alone.
func JobHeaderValue(j throttle.JobID, text string) string { return text + "\n" + j.Queue + "\n" + j.ID }

// Refusals returns how often the upstream has answered with a rate limit to a job in a row, from the
// headers of its task.
func Refusals(j throttle.JobID, headers map[string]string) (n int) {
	_, _ = fmt.Sscanf(JobHeader(j, headers, HeaderRefusals), "%d", &n)
	return max(0, n)
}

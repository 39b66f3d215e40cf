package scheduler

import (
	"strings"

	"github.com/headgate/headgate/internal/asynqdb"
)

// jobHeader returns the text of a header that withJobHeader wrote for the job, or "". It ignores the
// header of another job, because a handler may copy headers to a new task.
func jobHeader(j job, headers map[string]string, header string) string {
	text, name, _ := strings.Cut(headers[header], "\n")
	if name != j.Queue+"\n"+j.ID {
		return ""
	}
	return text
}

// withJobHeader returns a job's encoded message with a header that holds for this job alone. The text
// has no line break.
func withJobHeader(j job, msg []byte, header, text string) []byte {
	return asynqdb.WithHeader(msg, header, text+"\n"+j.Queue+"\n"+j.ID)
}

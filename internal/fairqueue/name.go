package fairqueue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// MostWeight is the most that a fairness key can weigh.
	MaxKeyWeight = 1000
	// MostTurns is the most that a queue can: whenever asynq looks for jobs it makes a list
	// as long as the weights of all queues together.
	MaxQueueWeight = 10_000
)

// Lane is the name of a lane: its queue and its meters, limit|key, one a line, and in the
// last line what a fairness key says, if there is one.
func Lane(queue string, meters []string, fair string) string {
	return queue + "\n" + strings.Join(meters, "\n") + fair
}

// FairLine is what the name of a lane ends in whose fairness key weighs so much: a line
// that is no meter's, as no limit is without a name. Without a key there is none.
func FairnessLine(key string, weight int) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf("\n|%d|%s", max(1, weight), key)
}

// Fair is the fairness key of a lane and its weight. Jobs that have none are one key's.
func FairnessKey(lane string) (key string, weight int64) {
	lines := strings.Split(lane, "\n")
	last, found := strings.CutPrefix(lines[len(lines)-1], "|")
	if !found {
		return "", 1
	}
	text, key, _ := strings.Cut(last, "|")
	weight, _ = strconv.ParseInt(text, 10, 64)
	return key, min(max(1, weight), MaxKeyWeight)
}

// Meters lists the meters that a lane's jobs need.
func Meters(lane string) []string {
	meters := strings.Split(lane, "\n")[1:]
	if last := len(meters) - 1; last > 0 && strings.HasPrefix(meters[last], "|") {
		return meters[:last]
	}
	return meters
}

// IsLane reports whether a text can be the name of a lane.
func IsLane(name string) bool {
	meters := Meters(name)
	return len(meters) > 0 && !slices.ContainsFunc(meters, func(meter string) bool { return strings.Index(meter, "|") < 1 })
}

// Queue is the queue whose jobs wait in a lane.
func Queue(lane string) string {
	queue, _, _ := strings.Cut(lane, "\n")
	return queue
}

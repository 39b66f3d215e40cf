package fairqueue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxKeyWeight is the largest weight of a fairness key.
	MaxKeyWeight = 1000
	// MaxQueueWeight is the largest weight of a queue. For every dequeue, asynq builds a slice as
	// long as the total weight of all queues.
	MaxQueueWeight = 10_000
)

// Lane returns the name of a lane: queue, then one line "limit|key" for each meter, then fair: a
// FairnessLine, or "".
func Lane(queue string, meters []string, fair string) string {
	return queue + "\n" + strings.Join(meters, "\n") + fair
}

// FairnessLine returns the end of the name of a lane with a fairness key, "" without one. Meters
// never begin with "|", because limit names are not empty.
func FairnessLine(key string, weight int) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf("\n|%d|%s", max(1, weight), key)
}

// FairnessKey returns the fairness key of a lane and its weight. A lane without one has the key ""
// and the weight 1.
func FairnessKey(lane string) (key string, weight int64) {
	last, found := strings.CutPrefix(lane[strings.LastIndex(lane, "\n")+1:], "|")
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

// Queue returns the queue whose jobs wait in a lane.
func Queue(lane string) string {
	queue, _, _ := strings.Cut(lane, "\n")
	return queue
}

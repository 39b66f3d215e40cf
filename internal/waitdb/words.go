package waitdb

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Word is news for the process that gives turns. Words can get lost: lanes and
// changes are numbered, so that this is seen.
type Notification struct {
	Kind   NotificationKind
	Number int64  // of the lane, or of the change
	Name   string // of the meter, the limit, the lane, the process, or of queues, one a line
}

// WordKind is what a word tells of.
type NotificationKind string

// The kinds of words, as the scripts write them.
const (
	LaneAdded    NotificationKind = "lane"  // a lane got its first job
	MeterChanged NotificationKind = "meter" // a meter may be ready sooner than was told
	LimitChanged NotificationKind = "limit" // so may all meters of a limit
	JobArrived   NotificationKind = "came"  // a called job of a full lane came
	Reconnected  NotificationKind = ""      // anything may have been missed, and be another Redis's, which has less
	TooMany      NotificationKind = "many"  // some were given up
	// QueuesWeigh: a server has said how its queues take turns.
	WeightsChanged NotificationKind = "weights"
	// PatienceEnds: a job waits whose time is up before that of all others.
	DeadlineAdded NotificationKind = "deadline"
	// SlotsWanted: the leader asks the servers of some queues for their free slots.
	SlotsRequested NotificationKind = "slots_wanted"
	// SlotsFree: a server says how many slots it has free for its queues.
	SlotsReported NotificationKind = "slots_free"
	// SteppedDown: the process of that name has given the lease back.
	SteppedDown NotificationKind = "stepped_down"
)

// mostKept is how many words wait to be taken before they are given up.
const mostKept = 1000

// Words returns what is said from now on, until the context ends. Redis never
// waits for the one who takes them: what is not taken is kept, and where that
// becomes too much, a single word says that anything may have been missed.
func (db *DB) Notifications(ctx context.Context) <-chan Notification {
	words := make(chan Notification)
	go func() {
		defer close(words)
		said := db.rdb.Subscribe(ctx, db.prefix+"wake")
		defer said.Close()
		messages := said.ChannelWithSubscriptions()
		var kept []Notification
		for {
			var taken chan<- Notification // nil, and so never ready, where nothing is kept
			var next Notification
			if len(kept) > 0 {
				taken, next = words, kept[0]
			}
			select {
			case <-ctx.Done():
				return
			case message, open := <-messages:
				if !open {
					return
				}
				if kept = append(kept, readWord(message)); len(kept) > mostKept {
					kept = []Notification{{Kind: TooMany}}
				}
			case taken <- next:
				kept = kept[1:]
			}
		}
	}()
	return words
}

func readWord(message any) Notification {
	m, ok := message.(*redis.Message)
	if !ok {
		return Notification{}
	}
	kind, rest, _ := strings.Cut(m.Payload, " ")
	w := Notification{Kind: NotificationKind(kind)}
	switch w.Kind {
	case JobArrived, SteppedDown, SlotsRequested:
		w.Name = rest
	default:
		number, name, _ := strings.Cut(rest, " ")
		w.Number, _ = strconv.ParseInt(number, 10, 64)
		w.Name = name
	}
	return w
}

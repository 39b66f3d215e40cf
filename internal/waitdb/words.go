package waitdb

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Word is news for the process that gives turns. Words can get lost: lanes and
// changes are numbered, so that this is seen.
type Word struct {
	Kind   WordKind
	Number int64  // of the lane, or of the change
	Name   string // of the meter, the limit, the lane, the process, or of queues, one a line
}

// WordKind is what a word tells of.
type WordKind string

// The kinds of words, as the scripts write them.
const (
	LaneMade     WordKind = "lane"  // a lane got its first job
	MeterChanged WordKind = "meter" // a meter may be ready sooner than was told
	LimitChanged WordKind = "limit" // so may all meters of a limit
	JobCame      WordKind = "came"  // a called job of a full lane came
	Reconnected  WordKind = ""      // anything may have been missed, and be another Redis's, which has less
	TooMany      WordKind = "many"  // some were given up
	// QueuesWeigh: a server has said how its queues take turns.
	QueuesWeigh WordKind = "weights"
	// PatienceEnds: a job waits whose time is up before that of all others.
	PatienceEnds WordKind = "patience"
	// SlotsWanted: the leader asks the servers of some queues for their free slots.
	SlotsWanted WordKind = "slots_wanted"
	// SlotsFree: a server says how many slots it has free for its queues.
	SlotsFree WordKind = "slots_free"
	// SteppedDown: the process of that name has given the lease back.
	SteppedDown WordKind = "stepped_down"
)

// mostKept is how many words wait to be taken before they are given up.
const mostKept = 1000

// Words returns what is said from now on, until the context ends. Redis never
// waits for the one who takes them: what is not taken is kept, and where that
// becomes too much, a single word says that anything may have been missed.
func (db *DB) Words(ctx context.Context) <-chan Word {
	words := make(chan Word)
	go func() {
		defer close(words)
		said := db.rdb.Subscribe(ctx, db.prefix+"wake")
		defer said.Close()
		messages := said.ChannelWithSubscriptions()
		var kept []Word
		for {
			var taken chan<- Word // nil, and so never ready, where nothing is kept
			var next Word
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
					kept = []Word{{Kind: TooMany}}
				}
			case taken <- next:
				kept = kept[1:]
			}
		}
	}()
	return words
}

func readWord(message any) Word {
	m, ok := message.(*redis.Message)
	if !ok {
		return Word{}
	}
	kind, rest, _ := strings.Cut(m.Payload, " ")
	w := Word{Kind: WordKind(kind)}
	switch w.Kind {
	case JobCame, SteppedDown, SlotsWanted:
		w.Name = rest
	default:
		number, name, _ := strings.Cut(rest, " ")
		w.Number, _ = strconv.ParseInt(number, 10, 64)
		w.Name = name
	}
	return w
}

package waitdb

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
)

// Version is that of the data in Redis. It goes up whenever the scripts of another version would
// misread them; then the workers of before must be stopped first.
const Version = 6

// NewEpoch returns a random name for a scope's data, which says their version.
func NewEpoch() string { return fmt.Sprint(Version, " ", uuid.NewString()) }

// Claim claims the scope for some time for the asynq Redis with these data, which had others before
// as far as its caller knows, and that address. It returns the address of another asynq Redis that
// has the scope, or the version of its data if that is not Version and they cannot be converted: it
// is a later one, or its workers live.
func (db *DB) Claim(ctx context.Context, data, before, address string, life time.Duration) (other string, version int64, err error) {
	reply, err := db.run(ctx, claimScript, data, before, address, life.Milliseconds(), Version).Slice()
	if err != nil {
		return "", 0, err
	}
	return reply[0].(string), reply[1].(int64), nil
}

// LanesPage is how many lanes one BecomeLeader names at most.
const LanesPage = 1000

// Leadership is what a process learns when it takes or renews the lease.
type Leadership struct {
	// Held is whether the process leads now. If not, Until is how long the leader keeps the lease,
	// and nothing else is known.
	Held           bool
	RemainingLease time.Duration
	// Fresh is whether the lease was taken anew, or Redis has lost what the process knew: then
	// NewLanes begins with the first of all lanes.
	ReadAll  bool
	Now      int64 // of Redis's clock
	Changes  int64 // how many changes to meters there were
	Epoch    string
	NewLanes []NumberedLane // lanes that got their first job, by number
	// NextDeadline is the next wait deadline, by Redis's clock; 0 if no job has one.
	NextDeadline int64
}

// NumberedLane is a lane and the number that it got with its first job.
type NumberedLane struct {
	Lane   string
	Number int64
}

// BecomeLeader takes or renews the lease for a process that knows all lanes up to a number. Epoch
// is a name for the scope's data, if they have none yet.
func (db *DB) BecomeLeader(ctx context.Context, process string, lease time.Duration, lastLane int64, epoch string) (Leadership, error) {
	reply, err := db.run(ctx, becomeLeaderScript, process, lease.Milliseconds(), lastLane, epoch, LanesPage, new(script.Sent)).Slice()
	if err != nil {
		return Leadership{}, err
	}
	if reply[0].(int64) == 0 {
		return Leadership{RemainingLease: microseconds(max(0, reply[1].(int64)))}, nil
	}
	l := Leadership{
		Held: true, ReadAll: reply[1].(int64) == 1, Now: reply[2].(int64), Changes: reply[3].(int64), Epoch: reply[4].(string), NextDeadline: reply[6].(int64),
	}
	lanes := reply[5].([]any)
	for i := 0; i < len(lanes); i += 2 {
		number, _ := strconv.ParseInt(lanes[i+1].(string), 10, 64)
		l.NewLanes = append(l.NewLanes, NumberedLane{lanes[i].(string), number})
	}
	return l, nil
}

// StepDown gives the lease back if the process holds it, and tells the other processes, so that one
// of them takes it at once.
func (db *DB) StepDown(ctx context.Context, process string) error {
	return db.run(ctx, stepDownScript, process).Err()
}

// SetWeights says how a server's queues take turns. A server that renews its claim says it only of
// queues of which nothing is known any more: of several servers that differ, the one that started
// last counts.
func (db *DB) SetWeights(ctx context.Context, weights map[string]fairqueue.Weight, renews bool) error {
	_, err := db.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for queue, w := range weights {
			text := strconv.Itoa(w.Turns)
			if w.Strict {
				text += " strict"
			}
			if renews {
				p.HSetNX(ctx, db.prefix+"weights", queue, text)
			} else {
				p.HSet(ctx, db.prefix+"weights", queue, text)
			}
		}
		if !renews {
			p.Publish(ctx, db.prefix+"wake", string(WeightsChanged))
		}
		return nil
	})
	return err
}

// Weights returns how queues take turns, as their servers said.
func (db *DB) Weights(ctx context.Context) (map[string]fairqueue.Weight, error) {
	texts, err := db.rdb.HGetAll(ctx, db.prefix+"weights").Result()
	weights := map[string]fairqueue.Weight{}
	for queue, text := range texts {
		number, strict := strings.CutSuffix(text, " strict")
		turns, _ := strconv.Atoi(number)
		weights[queue] = fairqueue.Weight{Turns: turns, Strict: strict}
	}
	return weights, unavailable(err)
}

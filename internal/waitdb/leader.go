package waitdb

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/headgate/headgate/internal/script"
)

// Version is the version of the data in Redis. A change of the data that older scripts would
// misread increases it. Workers of the older version must be stopped before a worker of the new one
// starts.
const Version = 9

// NewEpoch returns a new random ID of a scope's data, prefixed with Version.
func NewEpoch() string { return fmt.Sprint(Version, " ", uuid.NewString()) }

// Claim binds the scope to one asynq Redis for the time life. data is the ID of the data in that
// Redis, and before the ID of earlier data that it lost, or empty. If the scope is bound to another
// asynq Redis, other is the data ID of that Redis, else empty. version is the version of the
// scope's data if it is newer than this process's, or older and its leader still runs; else 0.
func (db *DB) Claim(ctx context.Context, data, before string, life time.Duration) (other string, version int64, err error) {
	reply, err := db.run(ctx, claimScript, data, before, life.Milliseconds(), Version).Slice()
	if err != nil {
		return "", 0, err
	}
	return reply[0].(string), reply[1].(int64), nil
}

// LanesPage is the most lanes that one BecomeLeader returns.
const LanesPage = 1000

// Leadership is the result of taking or renewing the lease.
type Leadership struct {
	// Held reports whether the process leads now. If Held is false, only RemainingLease and Leader
	// are set. If Held is true, these two are zero.
	Held bool
	// Leader is the other process that leads, and RemainingLease the time until its lease ends.
	RemainingLease time.Duration
	Leader         string
	// ReadAll reports whether the process must read all lanes again, because the lease had ended or
	// Redis has lost data. Then NewLanes begins with the first lane.
	ReadAll      bool
	Now          int64          // Redis's clock, Unix microseconds
	Changes      int64          // number of meter changes so far
	Epoch        string         // name of the scope's data
	NewLanes     []NumberedLane // at most LanesPage lanes with numbers above lastLane, in order
	NextDeadline int64          // next wait deadline, Unix microseconds; 0 if there is none
}

// NumberedLane is a lane and the number that it got with its first job.
type NumberedLane struct {
	Lane   string
	Number int64
}

// BecomeLeader acquires or renews the leader lease and returns lanes with numbers above lastLane.
// If the scope has no epoch yet, BecomeLeader stores the given epoch.
func (db *DB) BecomeLeader(ctx context.Context, process string, lease time.Duration, lastLane int64, epoch string) (Leadership, error) {
	reply, err := db.run(ctx, becomeLeaderScript, process, lease.Milliseconds(), lastLane, epoch, LanesPage, new(script.Sent)).Slice()
	if err != nil {
		return Leadership{}, err
	}
	fields := row(reply)
	if !fields.is(0) {
		return Leadership{RemainingLease: max(0, fields.duration(1)), Leader: fields.text(2)}, nil
	}
	l := Leadership{Held: true, ReadAll: fields.is(1), Now: fields.us(2), Changes: fields.us(3), Epoch: fields.text(4), NextDeadline: fields.us(6)}
	for lane := range slices.Chunk(fields.texts(5), 2) {
		number, _ := strconv.ParseInt(lane[1], 10, 64)
		l.NewLanes = append(l.NewLanes, NumberedLane{lane[0], number})
	}
	return l, nil
}

// StepDown gives the lease back if the process holds it, and notifies the other processes. The
// process named successor then takes the lease at once. If successor is empty, any process takes
// it.
func (db *DB) StepDown(ctx context.Context, process, successor string) error {
	return db.run(ctx, stepDownScript, process, successor).Err()
}

// RequestLead asks the leader to hand the lead over to a process. scopes is the number of scopes that
// this process leads already. The leader may refuse.
func (db *DB) RequestLead(ctx context.Context, process string, scopes int) error {
	return db.notify(ctx, Notification{LeadRequested, int64(scopes), process})
}

// SetWeights stores the weights of a server's queues. A server that renews its claim stores only
// missing weights, so that the last started server wins if several servers differ.
func (db *DB) SetWeights(ctx context.Context, weights map[string]fairqueue.Weight, renews bool) error {
	pipe := db.rdb.Pipeline()
	for queue, w := range weights {
		text := strconv.Itoa(w.Turns)
		if w.Strict {
			text += " strict"
		}
		if renews {
			pipe.HSetNX(ctx, db.prefix+"weights", queue, text)
		} else {
			pipe.HSet(ctx, db.prefix+"weights", queue, text)
		}
	}
	if _, err := pipe.Exec(ctx); err != nil || renews {
		return err
	}
	return db.notify(ctx, Notification{Kind: WeightsChanged})
}

// Weights returns the weights of queues that SetWeights has stored.
func (db *DB) Weights(ctx context.Context) (map[string]fairqueue.Weight, error) {
	texts, err := db.rdb.HGetAll(ctx, db.prefix+"weights").Result()
	if script.RemoveWrongTypes(ctx, db.rdb, db.prefix, err) {
		err = nil // no weights are stored, until the servers renew their claims
	}
	weights := map[string]fairqueue.Weight{}
	for queue, text := range texts {
		number, strict := strings.CutSuffix(text, " strict")
		turns, _ := strconv.Atoi(number)
		weights[queue] = fairqueue.Weight{Turns: turns, Strict: strict}
	}
	return weights, unavailable(err)
}

package waitdb

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/fairqueue"
	"github.com/redis/go-redis/v9"
)

// Weigh says how a server's queues take turns, for whoever gives them. One that renews
// its claim says it only of queues of which nothing is known any more: of several servers
// that differ, the one that started last counts.
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

// AskSlots asks the servers of some queues how many worker slots they have free.
func (db *DB) RequestSlots(ctx context.Context, queues []string) error {
	return db.rdb.Publish(ctx, db.prefix+"wake", string(SlotsRequested)+" "+strings.Join(queues, "\n")).Err()
}

// TellSlots says how many slots a server has free for its queues, and how long it takes on
// average until it has one more.
func (db *DB) ReportSlots(ctx context.Context, server string, free int, every time.Duration, queues []string) error {
	text := fmt.Sprintf("%s %d %s\n%d\n%s", SlotsReported, free, server, every.Microseconds(), strings.Join(queues, "\n"))
	return db.rdb.Publish(ctx, db.prefix+"wake", text).Err()
}

// Slots is what [DB.TellSlots] has said, but for the free slots, which are the word's number.
func (w Notification) Slots() (server string, every int64, queues []string) {
	lines := strings.Split(w.Name, "\n")
	if len(lines) < 3 {
		return "", 0, nil
	}
	every, _ = strconv.ParseInt(lines[1], 10, 64)
	return lines[0], every, lines[2:]
}

// Weights is how queues take turns, as their servers said.
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

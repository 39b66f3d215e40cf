package turns

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Weigh says how a server's queues take turns, for whoever gives them. One that renews
// its claim says it only of queues of which nothing is known any more: of several servers
// that differ, the one that started last counts.
func (s *Store) Weigh(ctx context.Context, weights map[string]Weight, renews bool) error {
	_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for queue, w := range weights {
			text := strconv.Itoa(w.Turns)
			if w.Strict {
				text += " strict"
			}
			if renews {
				p.HSetNX(ctx, s.prefix+"weights", queue, text)
			} else {
				p.HSet(ctx, s.prefix+"weights", queue, text)
			}
		}
		if !renews {
			p.Publish(ctx, s.prefix+"wake", string(QueuesWeigh))
		}
		return nil
	})
	return err
}

// Weights is how queues take turns, as their servers said.
func (s *Store) Weights(ctx context.Context) (map[string]Weight, error) {
	texts, err := s.rdb.HGetAll(ctx, s.prefix+"weights").Result()
	weights := map[string]Weight{}
	for queue, text := range texts {
		number, strict := strings.CutSuffix(text, " strict")
		turns, _ := strconv.Atoi(number)
		weights[queue] = Weight{turns, strict}
	}
	return weights, err
}

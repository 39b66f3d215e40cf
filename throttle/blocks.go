package throttle

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Blocked is a key of a limit that is held shut, by Block or by what the other side
// answered.
type Blocked struct {
	Key string
	// Until is when it opens, by Redis's clock, and For is how far off that is.
	Until time.Time
	For   time.Duration
}

// Blocks lists the keys of a limit that are held shut now, in the order in which
// they open. A limit that does not exist has none. It takes two round trips, and
// reads all such keys in one of them.
func (r *Redis) Blocks(ctx context.Context, limit string) ([]Blocked, error) {
	ends, err := r.rdb.ZRangeWithScores(ctx, r.prefix+"blocked:"+limit, 0, -1).Result()
	if err != nil || len(ends) == 0 {
		return nil, unavailable(err)
	}
	now, err := r.rdb.Time(ctx).Result()
	if err != nil {
		return nil, unavailable(err)
	}
	var blocks []Blocked
	for _, end := range ends {
		if b := blocked(end, now); b.For > 0 {
			blocks = append(blocks, b)
		}
	}
	return blocks, nil
}

// blocked reads an entry of the zset: its score is the end in microseconds.
func blocked(end redis.Z, now time.Time) Blocked {
	until := time.UnixMicro(int64(end.Score))
	key, _ := end.Member.(string)
	return Blocked{key, until, until.Sub(now)}
}

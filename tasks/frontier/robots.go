package frontier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// robotsFresh is how long a robots.txt counts, as RFC 9309 has it (2.4), and
	// robotsLife how long it is kept for when a newer one cannot be had.
	robotsFresh = 24 * time.Hour
	robotsLife  = 30 * 24 * time.Hour
)

// Robots is an answer to the request for a robots.txt: package robots says what it
// means. All crawls of a scope share it.
type Robots struct {
	Status int
	Text   []byte // as it was sent, up to what the caller kept
	// Fresh is whether it need not be asked for again.
	Fresh bool
}

// Robots is what an origin, scheme, host and port, answered last; ok is false if
// nothing is known. Its age is by the clocks of the two processes, which matters
// little within a day.
func (f *Frontier) Robots(ctx context.Context, origin string) (r Robots, ok bool, err error) {
	values, err := f.rdb.HGetAll(ctx, f.key("robots", origin)).Result()
	if err != nil || len(values) == 0 {
		return r, false, wrapRobots(origin, err)
	}
	if r.Text, err = unpack([]byte(values["packed"])); err != nil {
		return Robots{}, false, wrapRobots(origin, err)
	}
	r.Status, _ = strconv.Atoi(values["status"])
	at, _ := strconv.ParseInt(values["fetched"], 10, 64)
	r.Fresh = time.Since(time.UnixMilli(at)) < robotsFresh
	return r, true, nil
}

// KeepRobots keeps an origin's answer of that age, and ends the wait for it. An
// older age than it has makes it fresh for a shorter time.
func (f *Frontier) KeepRobots(ctx context.Context, origin string, status int, text []byte, age time.Duration) error {
	// Packed: a site can have more origins than there is memory for as many texts, which
	// come packed, too.
	packed, err := pack(text)
	if err != nil {
		return wrapRobots(origin, err)
	}
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSet(ctx, key, "status", status, "packed", packed, "fetched", time.Now().Add(-age).UnixMilli())
	pipe.PExpire(ctx, key, robotsLife)
	pipe.Del(ctx, f.key("robots_busy", origin))
	_, err = pipe.Exec(ctx)
	return wrapRobots(origin, err)
}

// RobotsHold is what keeps others from asking, for a while.
type RobotsHold string

// The holds.
const (
	RobotsAsked  RobotsHold = "asking" // a job asks
	RobotsFailed RobotsHold = "failed" // one got no answer
)

// AskRobots says who asks for an origin's robots.txt: one job at a time. Who does
// has the time given for it; after that the next may ask, for it may have died. It
// takes one round trip for that job and two for the others: those hear what holds them,
// and for how long.
func (f *Frontier) AskRobots(ctx context.Context, origin string, within time.Duration) (held RobotsHold, wait time.Duration, err error) {
	key := f.key("robots_busy", origin)
	if ask, err := f.rdb.SetNX(ctx, key, string(RobotsAsked), within).Result(); err != nil || ask {
		return "", 0, wrapRobots(origin, err)
	}
	pipe := f.rdb.Pipeline()
	why, left := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return "", 0, wrapRobots(origin, err)
	}
	return cmp.Or(RobotsHold(why.Val()), RobotsAsked), max(0, left.Val()), nil
}

// HoldRobots has nobody ask for so long: all wait for a job that asks elsewhere, where a
// redirect leads, or there was no answer, without which a thousand pages of a dead host
// would each wait for it. The job that asks elsewhere needs no answer of AskRobots.
func (f *Frontier) HoldRobots(ctx context.Context, origin string, why RobotsHold, wait time.Duration) error {
	return wrapRobots(origin, f.rdb.Set(ctx, f.key("robots_busy", origin), string(why), wait).Err())
}

// wrapRobots says which origin an error is about; nil stays nil.
func wrapRobots(origin string, err error) error {
	if err != nil {
		return fmt.Errorf("robots.txt of %s: %w", origin, err)
	}
	return nil
}

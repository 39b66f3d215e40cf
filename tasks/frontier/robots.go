package frontier

import (
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
	// robotsAgain and robotsLongest are the first and the longest pause after an origin gave no
	// robots.txt, and robotsForget is how much longer it is known that it failed.
	robotsAgain   = 30 * time.Second
	robotsLongest = time.Hour
	robotsForget  = 2 * time.Hour
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
	if err != nil || values["status"] == "" {
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
	pipe.HDel(ctx, key, "failing", "failures")
	pipe.PExpire(ctx, key, robotsLife)
	pipe.Del(ctx, f.key("robots_busy", origin))
	_, err = pipe.Exec(ctx)
	return wrapRobots(origin, err)
}

// RobotsHold keeps other jobs from asking for a robots.txt.
type RobotsHold struct {
	Wait time.Duration // how long it still holds
	// Failing is since when the origin gives no robots.txt. It is zero while a job asks.
	Failing time.Time
}

// AskRobots says who asks for an origin's robots.txt: one job at a time, which gets nil. That
// job has the time given for it; after that the next may ask, because the first may have died.
// AskRobots takes one round trip for that job and two for the others, which get the hold.
func (f *Frontier) AskRobots(ctx context.Context, origin string, within time.Duration) (*RobotsHold, error) {
	key := f.key("robots_busy", origin)
	if ask, err := f.rdb.SetNX(ctx, key, robotsAsked, within).Result(); err != nil || ask {
		return nil, wrapRobots(origin, err)
	}
	pipe := f.rdb.Pipeline()
	since, left := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, wrapRobots(origin, err)
	}
	hold := &RobotsHold{Wait: max(0, left.Val())}
	if at, err := since.Int64(); err == nil {
		hold.Failing = time.UnixMilli(at)
	}
	return hold, nil
}

// robotsAsked is what robots_busy has while a job asks. Else it has since when the origin
// gives no robots.txt, in ms.
const robotsAsked = "asking"

// HoldRobots has the others wait for a job that asks elsewhere, where a redirect leads. That
// job needs no answer of AskRobots.
func (f *Frontier) HoldRobots(ctx context.Context, origin string, wait time.Duration) error {
	return wrapRobots(origin, f.rdb.Set(ctx, f.key("robots_busy", origin), robotsAsked, wait).Err())
}

// ReleaseRobots lets the next job ask.
func (f *Frontier) ReleaseRobots(ctx context.Context, origin string) error {
	return wrapRobots(origin, f.rdb.Del(ctx, f.key("robots_busy", origin)).Err())
}

// FailRobots notes that an origin gave no robots.txt, and has all jobs wait: 30 s after the
// first failure, twice as long after each one in a row, and an hour at most; but for as long
// as the origin asked if that is longer. An origin that
// no job asks for two hours longer than that is tried as if it had not failed. It takes two
// round trips.
func (f *Frontier) FailRobots(ctx context.Context, origin string, asked time.Duration) (RobotsHold, error) {
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSetNX(ctx, key, "failing", time.Now().UnixMilli())
	failures, failing := pipe.HIncrBy(ctx, key, "failures", 1), pipe.HGet(ctx, key, "failing")
	pipe.PExpire(ctx, key, max(robotsLongest, asked)+robotsForget)
	if _, err := pipe.Exec(ctx); err != nil {
		return RobotsHold{}, wrapRobots(origin, err)
	}
	since, _ := failing.Int64()
	hold := RobotsHold{Wait: robotsLongest, Failing: time.UnixMilli(since)}
	if n := failures.Val() - 1; n < 10 {
		hold.Wait = min(robotsAgain<<n, robotsLongest)
	}
	hold.Wait = max(hold.Wait, asked)
	err := f.rdb.Set(ctx, f.key("robots_busy", origin), since, hold.Wait).Err()
	return hold, wrapRobots(origin, err)
}

// Pace keeps the requests to a host apart, whichever worker makes them. It returns 0 to a caller
// that may make one now, and no other may within the delay. The others get how long to wait. Pace
// takes one round trip, and two for those who have to wait.
func (f *Frontier) Pace(ctx context.Context, host string, delay time.Duration) (wait time.Duration, err error) {
	key := f.key("crawl_paced", host)
	free, err := f.rdb.SetNX(ctx, key, 1, delay).Result()
	if err == nil && !free {
		wait, err = f.rdb.PTTL(ctx, key).Result()
		wait = max(wait, time.Millisecond) // it may have ended meanwhile
	}
	if err != nil {
		return 0, fmt.Errorf("Crawl-delay of %s: %w", host, err)
	}
	return wait, nil
}

// wrapRobots says which origin an error is about; nil stays nil.
func wrapRobots(origin string, err error) error {
	if err != nil {
		return fmt.Errorf("robots.txt of %s: %w", origin, err)
	}
	return nil
}

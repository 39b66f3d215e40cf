package frontier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// robotsTimeout is the time after which a job that requests a robots.txt counts as lost.
	robotsTimeout = time.Minute
	// robotsValidity is the time for which a stored robots.txt is valid (RFC 9309, 2.4).
	robotsValidity = 24 * time.Hour
	// robotsTTL is the time for which Redis keeps a robots.txt. An expired file is still used if
	// the origin does not return a newer one.
	robotsTTL = 30 * 24 * time.Hour
	// robotsMinWait and robotsMaxWait are the first and the longest wait after an origin's failure
	// to return a robots.txt.
	robotsMinWait = 30 * time.Second
	robotsMaxWait = time.Hour
	// robotsForget is the time after the end of the longest wait for which the failure is kept.
	robotsForget = 2 * time.Hour
	// robotsLocked is the value of robots_busy while a job requests the file. While jobs wait for
	// the next attempt, the value is the time of the first failure in milliseconds.
	robotsLocked = "locked"
)

// RobotsResponse is an origin's response to the request for its robots.txt. All crawls of a scope
// share the response. Package robots parses it. An origin is a scheme, host and port.
type RobotsResponse struct {
	Status int    `redis:"status"` // 0 if none is stored
	Text   []byte `redis:"text"`   // the body, or its beginning
	// Next is the URL to request the file from, after Hops redirects. Empty means the origin's own.
	Next string `redis:"next"`
	Hops int    `redis:"hops"`
	// Valid reports whether the response is younger than a day.
	Valid bool `redis:"-"`

	FetchedMS int64 `redis:"fetched"`
}

// Robots returns the stored response of an origin.
func (f *Frontier) Robots(ctx context.Context, origin string) (r RobotsResponse, err error) {
	err = f.rdb.HGetAll(ctx, f.key("robots", origin)).Scan(&r)
	r.Valid = r.Status != 0 && time.Since(time.UnixMilli(r.FetchedMS)) < robotsValidity
	return r, wrapRobots(origin, err)
}

// StoreRobots stores an origin's response and releases the lock. The response counts as requested
// the given age ago, which shortens its validity.
func (f *Frontier) StoreRobots(ctx context.Context, origin string, status int, text []byte, age time.Duration) error {
	return f.unlockRobots(ctx, origin, func(pipe redis.Pipeliner, key string) {
		pipe.HSet(ctx, key, "status", status, "text", text, "fetched", time.Now().Add(-age).UnixMilli())
		pipe.HDel(ctx, key, "failing", "next", "hops")
	})
}

// RedirectRobots stores the URL that an origin's robots.txt redirects to, and releases the lock.
func (f *Frontier) RedirectRobots(ctx context.Context, origin, next string, hops int) error {
	return f.unlockRobots(ctx, origin, func(pipe redis.Pipeliner, key string) {
		pipe.HSet(ctx, key, "next", next, "hops", hops)
	})
}

func (f *Frontier) unlockRobots(ctx context.Context, origin string, change func(pipe redis.Pipeliner, key string)) error {
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	change(pipe, key)
	pipe.PExpire(ctx, key, robotsTTL)
	pipe.Del(ctx, f.key("robots_busy", origin))
	_, err := pipe.Exec(ctx)
	return wrapRobots(origin, err)
}

// RobotsHold is the time for which jobs must not request an origin's robots.txt, because another
// job requests it or the last request failed.
type RobotsHold struct {
	Wait         time.Duration // the remaining time of the hold
	FailingSince time.Time     // time of the origin's first failure; zero while a job requests the file
}

// LockRobots takes the lock for requesting an origin's robots.txt. It returns nil if the caller has
// the lock, which expires after a minute. If another job has the lock, or the last request failed a
// short time ago, LockRobots returns a RobotsHold after a second round trip.
func (f *Frontier) LockRobots(ctx context.Context, origin string) (*RobotsHold, error) {
	key := f.key("robots_busy", origin)
	if locked, err := f.rdb.SetNX(ctx, key, robotsLocked, robotsTimeout).Result(); err != nil || locked {
		return nil, wrapRobots(origin, err)
	}
	pipe := f.rdb.Pipeline()
	since, left := pipe.Get(ctx, key), pipe.PTTL(ctx, key)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, wrapRobots(origin, err)
	}
	hold := &RobotsHold{Wait: max(0, left.Val())}
	if at, err := since.Int64(); err == nil {
		hold.FailingSince = time.UnixMilli(at)
	}
	return hold, nil
}

// FailRobots records that an origin returned no robots.txt, and makes all jobs wait. The wait is 30
// s after the first failure and about doubles with each further failure, up to an hour. It is at
// least retryAfter, the time that the origin asked for. If no job requests the file for two hours
// and the longest wait, the next failure counts as the first. FailRobots takes two round trips.
func (f *Frontier) FailRobots(ctx context.Context, origin string, retryAfter time.Duration) (RobotsHold, error) {
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSetNX(ctx, key, "failing", time.Now().UnixMilli())
	failing := pipe.HGet(ctx, key, "failing")
	pipe.HDel(ctx, key, "next", "hops")
	pipe.PExpire(ctx, key, max(robotsMaxWait, retryAfter)+robotsForget)
	if _, err := pipe.Exec(ctx); err != nil {
		return RobotsHold{}, wrapRobots(origin, err)
	}
	since, _ := failing.Int64()
	hold := RobotsHold{FailingSince: time.UnixMilli(since)}
	hold.Wait = max(min(robotsMinWait+time.Since(hold.FailingSince), robotsMaxWait), retryAfter)
	err := f.rdb.Set(ctx, f.key("robots_busy", origin), since, hold.Wait).Err()
	return hold, wrapRobots(origin, err)
}

// Pace enforces a delay between the requests of all workers to a host. It returns 0 if the caller
// may make a request now, which starts the delay. Otherwise it returns the time to wait, after a
// second round trip.
func (f *Frontier) Pace(ctx context.Context, host string, delay time.Duration) (wait time.Duration, err error) {
	key := f.key("crawl_paced", host)
	free, err := f.rdb.SetNX(ctx, key, 1, delay).Result()
	if err == nil && !free {
		wait, err = f.rdb.PTTL(ctx, key).Result()
		wait = max(wait, time.Millisecond) // the key may have expired since SetNX
	}
	if err != nil {
		return 0, fmt.Errorf("Crawl-delay of %s: %w", host, err)
	}
	return wait, nil
}

// wrapRobots adds the origin to an error; nil stays nil.
func wrapRobots(origin string, err error) error {
	if err != nil {
		return fmt.Errorf("robots.txt of %s: %w", origin, err)
	}
	return nil
}

package frontier

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/script"
)

const (
	robotsTimeout = time.Minute    // the longest time for which a job has the lock of a robots.txt
	robotsTTL     = 24 * time.Hour // a robots.txt is valid for a day (RFC 9309, 2.4)
	robotsForget  = 2 * time.Hour  // how long Redis keeps a failure after the hold of StoreRobots
)

// Robots is the state of an origin's robots.txt, which all crawls of a scope share. An origin is a
// scheme, host and port. The zero value means that nothing is known.
type Robots struct {
	Known bool   `redis:"known"` // within a day, a job found the file, or found that there is none
	Text  []byte `redis:"text"`  // up to 500 KiB of the file; empty if there is no file
	// Next is the URL from which to request the file. Hops is the number of redirects that led to
	// Next. An empty Next means /robots.txt of the origin.
	Next         string `redis:"next"`
	Hops         int    `redis:"hops"`
	FailingSince int64  `redis:"failing"` // ms since 1970 of the first failed request; 0 if requests do not fail
}

// Robots returns the state of an origin's robots.txt, or the zero value if nothing is known.
func (f *Frontier) Robots(ctx context.Context, origin string) (r Robots, err error) {
	err = f.rdb.HGetAll(ctx, f.key("robots", origin)).Scan(&r)
	if script.RemoveWrongTypes(ctx, f.rdb, f.prefix, err) {
		err = nil
	}
	return r, err
}

// LockRobots takes the lock for requesting an origin's robots.txt. If it returns 0, the caller has
// the lock until StoreRobots, or for a minute. Any other result is the time until another job's lock
// or the pause after a failed request ends.
func (f *Frontier) LockRobots(ctx context.Context, origin string) (wait time.Duration, err error) {
	return f.lock(ctx, "robots_busy", origin, robotsTimeout)
}

// StoreRobots stores the state of an origin's robots.txt, and releases the lock after hold, or at
// once if hold is 0. A failure is forgotten two hours after hold, any other state after a day.
func (f *Frontier) StoreRobots(ctx context.Context, origin string, r Robots, hold time.Duration) error {
	key, busy := f.key("robots", origin), f.key("robots_busy", origin)
	ttl := robotsTTL
	if r.FailingSince != 0 {
		ttl = hold + robotsForget
	}
	pipe := f.rdb.TxPipeline()
	pipe.HSet(ctx, key, r)
	pipe.PExpire(ctx, key, ttl)
	if pipe.Del(ctx, busy); hold > 0 {
		pipe.Set(ctx, busy, 1, hold)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// Pace enforces a delay between the requests of all workers to a host. If it returns 0, the caller
// may make a request now. Any other result is the time until the delay ends.
func (f *Frontier) Pace(ctx context.Context, host string, delay time.Duration) (wait time.Duration, err error) {
	return f.lock(ctx, "crawl_paced", host, delay)
}

// lock takes a lock for the duration d and returns 0. If the lock is taken, lock returns the time
// until it is free.
func (f *Frontier) lock(ctx context.Context, name, of string, d time.Duration) (wait time.Duration, err error) {
	key := f.key(name, of)
	taken, err := f.rdb.SetNX(ctx, key, 1, d).Result()
	if err == nil && !taken {
		wait, err = f.rdb.PTTL(ctx, key).Result()
		if wait == -1 { // headgate writes no lock without an end
			wait, err = d, f.rdb.PExpire(ctx, key, d).Err()
		}
		wait = max(wait, time.Millisecond) // if the key has expired since SetNX, PTTL is negative
	}
	return wait, err
}

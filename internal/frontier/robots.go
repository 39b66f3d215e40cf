package frontier

import (
	"context"
	"time"
)

const (
	robotsTimeout = time.Minute    // a job that requests a robots.txt for longer counts as lost
	robotsTTL     = 24 * time.Hour // a robots.txt is valid for a day (RFC 9309, 2.4)
	robotsForget  = 2 * time.Hour  // a failure is kept for this time after its hold
)

// Robots is the state of an origin's robots.txt, which all crawls of a scope share. An origin is a
// scheme, host and port. The zero value means that nothing is known.
type Robots struct {
	Known bool   `redis:"known"` // the file was fetched within a day
	Text  []byte `redis:"text"`  // beginning of the file, empty if there is no file
	// Next is the URL to request the file from, after Hops redirects. Empty means the origin's own.
	Next         string `redis:"next"`
	Hops         int    `redis:"hops"`
	FailingSince int64  `redis:"failing"` // time of the first of the failed requests in ms, or 0
}

// Robots returns the state of an origin's robots.txt.
func (f *Frontier) Robots(ctx context.Context, origin string) (r Robots, err error) {
	err = f.rdb.HGetAll(ctx, f.key("robots", origin)).Scan(&r)
	return r, err
}

// LockRobots takes the lock for requesting an origin's robots.txt. It returns 0 if the caller has the
// lock, until StoreRobots or for a minute. Otherwise it returns how long the lock is held by another
// job, or because the last request failed.
func (f *Frontier) LockRobots(ctx context.Context, origin string) (wait time.Duration, err error) {
	return f.lock(ctx, "robots_busy", origin, robotsTimeout)
}

// StoreRobots stores the state of an origin's robots.txt, and releases the lock after a time. It
// stores a failure for two hours more.
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

// Pace enforces a delay between the requests of all workers to a host. It returns 0 if the caller
// may make a request now, which starts the delay, or else the time to wait.
func (f *Frontier) Pace(ctx context.Context, host string, delay time.Duration) (wait time.Duration, err error) {
	return f.lock(ctx, "crawl_paced", host, delay)
}

// lock takes a lock for a time. It returns 0, or the time until the lock is free.
func (f *Frontier) lock(ctx context.Context, name, of string, d time.Duration) (wait time.Duration, err error) {
	key := f.key(name, of)
	taken, err := f.rdb.SetNX(ctx, key, 1, d).Result()
	if err == nil && !taken {
		wait, err = f.rdb.PTTL(ctx, key).Result()
		wait = max(wait, time.Millisecond) // the key may have expired since SetNX
	}
	return wait, err
}

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
	robotsFresh = 24 * time.Hour      // how long a robots.txt counts (RFC 9309, 2.4)
	robotsTTL   = 30 * 24 * time.Hour // how long it is kept in case a newer one cannot be had
	// robotsMinWait and robotsMaxWait are the first and the longest wait after an origin gave no
	// robots.txt. The failure is forgotten robotsForget after the longest wait.
	robotsMinWait = 30 * time.Second
	robotsMaxWait = time.Hour
	robotsForget  = 2 * time.Hour
)

// Robots is an origin's answer to the request for its robots.txt. All crawls of a scope
// share it. Package robots interprets it.
type Robots struct {
	Status int
	Text   []byte // as much of the body as the caller kept
	Fresh  bool   // whether the answer need not be asked for again
}

// Robots returns the last answer of an origin: scheme, host and port. ok is false if there is
// none. Its age is measured by the clocks of two processes, which matters little within a day.
func (f *Frontier) Robots(ctx context.Context, origin string) (r Robots, ok bool, err error) {
	values, err := f.rdb.HGetAll(ctx, f.key("robots", origin)).Result()
	if err != nil || values["status"] == "" {
		return r, false, wrapRobots(origin, err)
	}
	r.Status, _ = strconv.Atoi(values["status"])
	r.Text = []byte(values["text"])
	at, _ := strconv.ParseInt(values["fetched"], 10, 64)
	r.Fresh = time.Since(time.UnixMilli(at)) < robotsFresh
	return r, true, nil
}

// KeepRobots stores an origin's answer and ends the wait for it. Age shortens how long the
// answer is fresh.
func (f *Frontier) KeepRobots(ctx context.Context, origin string, status int, text []byte, age time.Duration) error {
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSet(ctx, key, "status", status, "text", text, "fetched", time.Now().Add(-age).UnixMilli())
	pipe.HDel(ctx, key, "failing")
	pipe.PExpire(ctx, key, robotsTTL)
	pipe.Del(ctx, f.key("robots_busy", origin))
	_, err := pipe.Exec(ctx)
	return wrapRobots(origin, err)
}

// RobotsHold tells jobs not to ask for a robots.txt.
type RobotsHold struct {
	Wait    time.Duration // how long the hold lasts
	Failing time.Time     // since when the origin gives no robots.txt; zero while a job asks
}

// AskRobots decides who asks for an origin's robots.txt. One job at a time may: it gets nil and
// has the time within for it. After that the next job may ask, because the first may have died.
// The other jobs get the hold, which takes a second round trip.
func (f *Frontier) AskRobots(ctx context.Context, origin string, within time.Duration) (*RobotsHold, error) {
	key := f.key("robots_busy", origin)
	if ask, err := f.rdb.SetNX(ctx, key, asking, within).Result(); err != nil || ask {
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

// asking is the value of robots_busy while a job asks. Otherwise the value is since when the
// origin gives no robots.txt, in ms.
const asking = "asking"

// HoldRobots makes jobs wait for another job that asks where a redirect leads.
func (f *Frontier) HoldRobots(ctx context.Context, origin string, wait time.Duration) error {
	return wrapRobots(origin, f.rdb.Set(ctx, f.key("robots_busy", origin), asking, wait).Err())
}

// ReleaseRobots lets the next job ask.
func (f *Frontier) ReleaseRobots(ctx context.Context, origin string) error {
	return wrapRobots(origin, f.rdb.Del(ctx, f.key("robots_busy", origin)).Err())
}

// FailRobots records that an origin gave no robots.txt, and makes all jobs wait: 30 s after the
// first failure, about twice as long after each further one, up to an hour, and at least for
// the time that the origin asked for. An origin that no job asks for two hours after that
// counts as new. FailRobots takes two round trips.
func (f *Frontier) FailRobots(ctx context.Context, origin string, asked time.Duration) (RobotsHold, error) {
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSetNX(ctx, key, "failing", time.Now().UnixMilli())
	failing := pipe.HGet(ctx, key, "failing")
	pipe.PExpire(ctx, key, max(robotsMaxWait, asked)+robotsForget)
	if _, err := pipe.Exec(ctx); err != nil {
		return RobotsHold{}, wrapRobots(origin, err)
	}
	since, _ := failing.Int64()
	hold := RobotsHold{Failing: time.UnixMilli(since)}
	hold.Wait = max(min(robotsMinWait+time.Since(hold.Failing), robotsMaxWait), asked)
	err := f.rdb.Set(ctx, f.key("robots_busy", origin), since, hold.Wait).Err()
	return hold, wrapRobots(origin, err)
}

// Pace keeps the requests of all workers to a host apart. It returns 0 if the caller may make
// a request now; then no other may within the delay. Otherwise it returns how long to wait,
// which takes a second round trip.
func (f *Frontier) Pace(ctx context.Context, host string, delay time.Duration) (wait time.Duration, err error) {
	key := f.key("crawl_paced", host)
	free, err := f.rdb.SetNX(ctx, key, 1, delay).Result()
	if err == nil && !free {
		wait, err = f.rdb.PTTL(ctx, key).Result()
		wait = max(wait, time.Millisecond) // the delay may have ended meanwhile
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

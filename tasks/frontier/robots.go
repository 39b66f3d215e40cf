package frontier

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

const (
	// robotsFresh is how long a robots.txt counts, as RFC 9309 has it, and
	// robotsLife how long it counts where a newer one cannot be had.
	robotsFresh = 24 * time.Hour
	robotsLife  = 30 * 24 * time.Hour
)

// Robots is an answer to the request for a robots.txt.
type Robots struct {
	Status int
	Text   []byte
	// Fresh is whether it need not be asked for again.
	Fresh bool
}

// Robots is what an origin answered last; ok is false if nothing is known.
func (f *Frontier) Robots(ctx context.Context, origin string) (r Robots, ok bool, err error) {
	values, err := f.rdb.HGetAll(ctx, f.key("robots", origin)).Result()
	if err != nil || len(values) == 0 {
		return r, false, wrapRobots(origin, err)
	}
	r.Text = []byte(values["text"])
	r.Status, _ = strconv.Atoi(values["status"])
	at, _ := strconv.ParseInt(values["at"], 10, 64)
	r.Fresh = time.Since(time.UnixMilli(at)) < robotsFresh
	return r, true, nil
}

// KeepRobots keeps an origin's answer of that age, and ends the wait for it.
func (f *Frontier) KeepRobots(ctx context.Context, origin string, status int, text []byte, age time.Duration) error {
	key := f.key("robots", origin)
	pipe := f.rdb.TxPipeline()
	pipe.HSet(ctx, key, "status", status, "text", text, "at", time.Now().Add(-age).UnixMilli())
	pipe.PExpire(ctx, key, robotsLife)
	pipe.Del(ctx, f.key("robots_busy", origin))
	_, err := pipe.Exec(ctx)
	return wrapRobots(origin, err)
}

// AskRobots reports whether the caller is to ask for an origin's robots.txt, and
// else how long to wait for whoever does. The caller has the time given for it.
func (f *Frontier) AskRobots(ctx context.Context, origin string, within time.Duration) (ask bool, wait time.Duration, err error) {
	key := f.key("robots_busy", origin)
	ask, err = f.rdb.SetNX(ctx, key, "1", within).Result()
	if err == nil && !ask {
		wait, err = f.rdb.PTTL(ctx, key).Result()
	}
	return ask, max(0, wait), wrapRobots(origin, err)
}

// AwaitRobots has all wait for so long before they ask for it.
func (f *Frontier) AwaitRobots(ctx context.Context, origin string, wait time.Duration) error {
	return wrapRobots(origin, f.rdb.Set(ctx, f.key("robots_busy", origin), "1", wait).Err())
}

func wrapRobots(origin string, err error) error {
	if err != nil {
		return fmt.Errorf("robots.txt of %s: %w", origin, err)
	}
	return nil
}

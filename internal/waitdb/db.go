// Package waitdb stores jobs that wait for permits in Redis. It extends the throttle.Limiter by a
// wait queue, and contains all Redis access of the dispatcher. No other package knows how Redis
// stores the jobs.
//
// A job that is denied joins a lane: the jobs of one queue and one fairness key that need the same
// meters, first in, first out. Lanes that share a meter take turns there. A worker asks again for
// the permits of a waiting job only when they are reserved for the job, and new jobs cannot take
// these permits. So each job is denied only once, however long the backlog is.
package waitdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/throttle"
)

var (
	feedbackScript       = script.New("limits/feedback")
	readMetersScript     = script.New("limits/read_meters")
	acquireScript        = script.New("lanes/acquire")
	becomeLeaderScript   = script.New("lanes/become_leader")
	claimScript          = script.New("lanes/claim")
	expireActiveScript   = script.New("lanes/expire_active")
	expireGrantsScript   = script.New("lanes/expire_grants")
	expireWaitsScript    = script.New("lanes/expire_waits")
	forgetScript         = script.New("lanes/forget")
	grantScript          = script.New("lanes/grant")
	positionsScript      = script.New("lanes/positions")
	publishSharesScript  = script.New("lanes/publish_shares")
	rateLimitedScript    = script.New("lanes/rate_limited")
	readLanesScript      = script.New("lanes/read_lanes")
	repairRecordsScript  = script.New("lanes/repair_records")
	repairReservedScript = script.New("lanes/repair_reserved")
	stepDownScript       = script.New("lanes/step_down")
)

// Page sizes, chosen so that one call occupies Redis for about a millisecond.
const (
	scanPage  = 1000 // fields of a hash that one call scans
	writePage = 100  // jobs or meters that one script takes
)

// DB is a limiter in Redis for whose permits queued jobs can wait. A dispatcher must give the lanes
// their turns; package scheduler runs one. A DB is safe for concurrent use.
type DB struct {
	*throttle.Limiter
	rdb     redis.UniversalClient
	prefix  string
	app     string
	keys    []string // KEYS of every script: the prefix
	callers *script.Callers
}

// New returns the limiter with the lanes of its scope.
func New(limiter *throttle.Limiter) *DB {
	rdb, prefix, app := limiter.Internals().Scope()
	return &DB{limiter, rdb, prefix, app, []string{prefix}, script.NewCallers()}
}

// Scope returns the Redis client and the key prefix of the scope.
func (db *DB) Scope() (rdb redis.UniversalClient, prefix string) { return db.rdb, db.prefix }

// Now returns the time of Redis's clock.
func (db *DB) Now(ctx context.Context) (time.Time, error) {
	now, err := db.rdb.Time(ctx).Result()
	return now, unavailable(err)
}

// run runs a script. It flattens lists of texts, of jobs (queue, ID) and of needs (limit, key).
func (db *DB) run(ctx context.Context, script *script.Script, args ...any) *redis.Cmd {
	flat := make([]any, 0, len(args))
	for _, arg := range args {
		switch list := arg.(type) {
		case []string:
			for _, text := range list {
				flat = append(flat, text)
			}
		case []throttle.JobID:
			for _, job := range list {
				flat = append(flat, job.Queue, job.ID)
			}
		case []throttle.Need:
			for _, n := range list {
				flat = append(flat, n.Limit, n.Key)
			}
		default:
			flat = append(flat, arg)
		}
	}
	return script.Run(ctx, db.rdb, db.keys, flat...)
}

// row is a list in the reply of a script.
type row []any

func (r row) row(i int) row     { return r[i].([]any) }
func (r row) text(i int) string { return r[i].(string) }
func (r row) us(i int) int64    { return r[i].(int64) }
func (r row) is(i int) bool     { return r.us(i) == 1 }

func (r row) duration(i int) time.Duration { return microseconds(r.us(i)) }

func (r row) texts(i int) (texts []string) {
	for _, text := range r.row(i) {
		texts = append(texts, text.(string))
	}
	return texts
}

// scan calls f with each field of a hash, a page at a time. As with HSCAN, a field may be visited
// twice.
func (db *DB) scan(ctx context.Context, hash string, f func(field, value string)) error {
	scan := db.rdb.HScan(ctx, db.prefix+hash, 0, "", scanPage).Iterator()
	for scan.Next(ctx) {
		field := scan.Val()
		scan.Next(ctx)
		f(field, scan.Val())
	}
	return unavailable(scan.Err())
}

// nameOf returns the field of a job in the hash of records.
func nameOf(job throttle.JobID) string { return job.Queue + "\n" + job.ID }

func jobOf(name string) throttle.JobID {
	queue, id, _ := strings.Cut(name, "\n")
	return throttle.JobID{Queue: queue, ID: id}
}

// unavailable wraps a Redis or network error in throttle.ErrUnavailable, unless it is wrapped
// already.
func unavailable(err error) error {
	if err == nil || errors.Is(err, throttle.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", throttle.ErrUnavailable, err)
}

// unixMicro returns a time for a script: Unix microseconds, 0 for the zero time.
func unixMicro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

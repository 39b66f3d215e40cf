package asynqdb

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
)

const (
	// ArchiveTime is how long asynq keeps an archived job.
	ArchiveTime = 90 * 24 * time.Hour
	// archiveSize is how many archived jobs of a queue asynq keeps. It deletes the oldest of more.
	archiveSize = 10000
	// ArchivePage is how many archived jobs one call of ExpireArchived deletes.
	ArchivePage = 1000
	// unboundedSize replaces archiveSize. Redis counts no set that large.
	unboundedSize = math.MaxInt32
)

// keepArchived returns the arguments of a script of asynq's, changed so that the script deletes no
// archived jobs. asynq's archive scripts get the time before which they delete jobs, and after it
// archiveSize, which is their only argument of type int. Deletion by age has bounds in Go instead:
// see ExpireArchived. asynq's script fails if it has to delete some thousands of jobs at once.
// keepArchived does not change args, and returns other scripts' arguments as they are.
func keepArchived(names []string, args []any) []any {
	if !slices.Contains(names, Archived) {
		return args
	}
	i := slices.Index(args, any(archiveSize))
	if i < 1 {
		return args
	}
	args = slices.Clone(args)
	args[i-1], args[i] = int64(0), unboundedSize
	return args
}

// Inspector returns an Inspector of asynq's that deletes no archived jobs when it archives others.
func (db DB) Inspector() *asynq.Inspector {
	return asynq.NewInspectorFromRedisClient(archivingClient{db.Redis})
}

// archivingClient is the Redis client of an Inspector.
type archivingClient struct{ redis.UniversalClient }

// EvalSha implements redis.Scripter.
func (c archivingClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.EvalSha(ctx, sha1, keys, keepArchived(namesOf(keys), args)...)
}

// Eval implements redis.Scripter.
func (c archivingClient) Eval(ctx context.Context, text string, keys []string, args ...any) *redis.Cmd {
	return c.UniversalClient.Eval(ctx, text, keys, keepArchived(namesOf(keys), args)...)
}

// namesOf returns the names of keys in their queues.
func namesOf(keys []string) []string {
	names := make([]string, len(keys))
	for i, key := range keys {
		_, names[i] = ParseKey(key)
	}
	return names
}

var expireArchivedScript = script.New("asynq/expire_archived")

// ExpireArchived deletes the oldest jobs of a queue that were archived before a time, at most
// ArchivePage, and returns their number.
func (db DB) ExpireArchived(ctx context.Context, queue string, before time.Time) (int, error) {
	return expireArchivedScript.Run(ctx, db.Redis, []string{Key(queue, Archived)}, Hash(queue, ""), before.Unix(), ArchivePage).Int()
}

// CountArchived returns how many jobs of a queue were archived at a time or later.
func (db DB) CountArchived(ctx context.Context, queue string, since time.Time) (int, error) {
	n, err := db.Redis.ZCount(ctx, Key(queue, Archived), strconv.FormatInt(since.Unix(), 10), "+inf").Result()
	return int(n), err
}

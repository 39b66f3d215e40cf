package worker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/internal/config"
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
)

// Check checks what a worker with this config needs. If the worker could not run, Check returns an
// error.
func Check(ctx context.Context, conf *config.Config) (warnings []string, err error) {
	if _, err := newHandlers(conf); err != nil || conf.Redis.IsZero() {
		return warnings, err
	}
	rdb, end, err := conf.Redis.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	prefix := script.Prefix(conf.Scope)
	if err := redishealth.TryRights(ctx, rdb, prefix, asynqdb.Key(asynqdb.CheckQueue, "")); err != nil {
		return nil, err
	}
	if err := redishealth.TryWrite(ctx, rdb, prefix); err != nil {
		return nil, fmt.Errorf("cannot write to Redis: %w", err)
	}
	if err := asynqdb.New(rdb).Check(ctx); err != nil {
		return nil, err
	}
	for _, check := range []func(context.Context, redis.UniversalClient) (string, error){
		uncheckedWarning, evictionWarning,
		func(ctx context.Context, rdb redis.UniversalClient) (string, error) {
			return restartWarning(ctx, rdb, prefix)
		},
		aofWarning, clockWarning,
	} {
		warning, err := check(ctx, rdb)
		if err != nil {
			return nil, fmt.Errorf("cannot check Redis: %w", err)
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings, nil
}

// unknown returns err if it leaves unknown how Redis is configured because no answer came. It returns
// nil if Redis has answered that the user may not know; uncheckedWarning says so.
func unknown(err error) error {
	if redishealth.ProblemOf(err) == redishealth.NoRights {
		return nil
	}
	return redishealth.Unavailable(err)
}

// uncheckedWarning names the right without which Check cannot see how Redis is configured. It returns
// "" if the user has the right.
func uncheckedWarning(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	what, right, err := "evicts keys, and whether it saves its data", "+info", rdb.Info(ctx, "persistence").Err()
	if err == nil {
		fields, unread := persistenceInfo(ctx, rdb)
		if unread != nil || fields["aof_enabled"] != "1" {
			return "", unread
		}
		what, right = "restores all data after a restart", "+acl|dryrun"
		err = rdb.Do(ctx, "acl", "dryrun", "default", "time").Err()
	}
	if redishealth.ProblemOf(err) != redishealth.NoRights {
		return "", unknown(err)
	}
	return fmt.Sprintf("cannot check whether Redis %s: the Redis user %s needs %s", what, script.User(rdb), right), nil
}

// evictionWarning warns of a Redis that evicts keys when its memory is full. It returns "" if Redis
// evicts no keys, or may not say its policy to the user.
func evictionWarning(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	policy, err := redishealth.EvictionPolicy(ctx, rdb)
	if policy == "" {
		return "", unknown(err)
	}
	return fmt.Sprintf("Redis deletes jobs and limits when its memory is full, because its maxmemory-policy is %s:"+
		" have its operator set maxmemory-policy to noeviction on all its servers", policy), nil
}

// restartWarning warns of a Redis whose user default lacks rights. At its start, Redis executes the
// append-only file as this user, and so loses data. restartWarning returns "" if there is no such
// file, or if the rights are unknown.
// https://github.com/redis/redis/issues/14541
func restartWarning(ctx context.Context, rdb redis.UniversalClient, prefix string) (string, error) {
	fields, err := persistenceInfo(ctx, rdb)
	if err != nil || fields["aof_enabled"] != "1" {
		return "", err
	}
	for _, key := range []string{prefix + "probe", asynqdb.Key("probe", asynqdb.Retry)} {
		for _, write := range []string{"del %s", "hset %s f 1", "lpush %s 1", "pexpireat %s 1", "sadd %s 1", "set %s 1", "xadd %s * f 1", "zadd %s 1 1"} {
			command := []any{"acl", "dryrun", "default"}
			for word := range strings.FieldsSeq(fmt.Sprintf(write, key)) {
				command = append(command, word)
			}
			reply, err := rdb.Do(ctx, command...).Text()
			switch {
			case err != nil:
				return "", unknown(err)
			case reply != "OK":
				return "a restart of Redis loses jobs and limits: it restores its append-only file as the user default, who lacks rights:" +
					" have its operator put this line into its ACL file: user default off ~* &* +@all", nil
			}
		}
	}
	return "", nil
}

// aofWarning warns of a Redis without an append-only file. It returns "" if there is a file, or
// if Redis may not say it to the user.
func aofWarning(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	fields, err := persistenceInfo(ctx, rdb)
	if err != nil || fields["aof_enabled"] != "0" {
		return "", err
	}
	return "Redis has no append-only file: a crash of Redis loses the jobs and the permits since its last snapshot: have its operator set appendonly to yes", nil
}

// maxSkew is the largest difference between the clocks without a warning. If the difference is
// larger, asynq can start a waiting job too early, and the job is denied once more.
const maxSkew = 3 * time.Second

func clockWarning(ctx context.Context, rdb redis.UniversalClient) (string, error) {
	before := time.Now()
	theirs, err := rdb.Time(ctx).Result()
	ahead := theirs.Sub(before.Add(time.Since(before) / 2)).Round(time.Second)
	if err != nil || ahead.Abs() <= maxSkew {
		return "", unknown(err)
	}
	return fmt.Sprintf("Redis's clock and the clock of this machine differ by %s: set both by NTP", ahead.Abs()), nil
}

// persistenceInfo returns the fields of INFO persistence, or none if the user lacks the right.
func persistenceInfo(ctx context.Context, rdb redis.UniversalClient) (map[string]string, error) {
	fields := map[string]string{}
	info, err := rdb.Info(ctx, "persistence").Result()
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, unknown(err)
}

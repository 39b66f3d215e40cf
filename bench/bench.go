package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// bench is a redis-server for the measurements, and the outputs of the command.
type bench struct {
	ctx            context.Context
	server         *redistest.Server
	rdb            *redis.Client
	stdout, stderr io.Writer
}

// poolSize is enough for all goroutines that call Redis at once.
const poolSize = 64

// withBench runs f with a new redis-server.
func withBench(ctx context.Context, stdout, stderr io.Writer, f func(*bench) error) (err error) {
	server, err := redistest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	options := server.Options()
	options.PoolSize = poolSize
	rdb := redis.NewClient(options)
	defer rdb.Close()
	return f(&bench{ctx, server, rdb, stdout, stderr})
}

// note prints a line of progress.
func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(b.stderr, format+"\n", args...)
}

// empty deletes all keys.
func (b *bench) empty() error { return b.rdb.FlushAll(b.ctx).Err() }

// usage is what the redis-server has used since its start.
type usage struct {
	cpu      time.Duration // of the process; it has one busy thread
	commands int64         // including commands that scripts call
}

func (u usage) since(before usage) usage {
	return usage{u.cpu - before.cpu, u.commands - before.commands}
}

func (b *bench) usage() (usage, error) {
	info, err := b.rdb.InfoMap(b.ctx, "cpu", "stats").Result()
	if err != nil {
		return usage{}, err
	}
	user, err1 := strconv.ParseFloat(info["CPU"]["used_cpu_user"], 64)
	system, err2 := strconv.ParseFloat(info["CPU"]["used_cpu_sys"], 64)
	commands, err3 := strconv.ParseInt(info["Stats"]["total_commands_processed"], 10, 64)
	return usage{time.Duration((user + system) * 1e9), commands}, errors.Join(err1, err2, err3)
}

// spent returns what the redis-server uses while f runs.
func (b *bench) spent(f func() error) (usage, error) {
	before, err := b.usage()
	if err == nil {
		err = f()
	}
	if err != nil {
		return usage{}, err
	}
	after, err := b.usage()
	return after.since(before), err
}

// sleep waits for d, or until the context ends.
func (b *bench) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-b.ctx.Done():
		return context.Cause(b.ctx)
	}
}

// dataset returns the memory of all keys that do not expire, by Redis's own count, without
// connections and the table of keys.
func (b *bench) dataset() (int64, error) {
	keys, err := b.rdb.Keys(b.ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for batch := range slices.Chunk(keys, 1000) {
		pipeline := b.rdb.Pipeline()
		sizes := make([]*redis.IntCmd, len(batch))
		lives := make([]*redis.DurationCmd, len(batch))
		for i, key := range batch {
			sizes[i], lives[i] = pipeline.MemoryUsage(b.ctx, key, 0), pipeline.PTTL(b.ctx, key)
		}
		if _, err := pipeline.Exec(b.ctx); err != nil && !errors.Is(err, redis.Nil) { // Nil: expired meanwhile
			return 0, err
		}
		for i := range batch {
			if lives[i].Val() == -1 {
				sum += sizes[i].Val()
			}
		}
	}
	return sum, nil
}

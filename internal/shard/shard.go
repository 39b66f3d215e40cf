// Package shard knows how a sharded queue is divided: which shard a job belongs to, what the shards
// are called, and which part of a limit each shard has.
package shard

import (
	"hash/fnv"
	"strconv"
	"strings"
)

// MaxCount is the largest number of shards of a queue.
const MaxCount = 1000

// Shard is one shard of a queue.
type Shard struct {
	Queue string
	Index int // from 0
	Count int // number of shards of the queue
}

// Of returns the shard of a queue to which a key belongs. All producers use it, so a key's jobs are
// all in one shard as long as the number of shards stays the same.
func Of(queue, key string, count int) Shard {
	h := fnv.New64a()
	h.Write([]byte(key))
	sum := h.Sum64()
	sum ^= sum >> 33 // FNV's low bits alone depend on the low bits of each byte
	return Shard{queue, int(sum % uint64(count)), count}
}

// All returns all shards of a queue.
func All(queue string, count int) []Shard {
	all := make([]Shard, count)
	for i := range all {
		all[i] = Shard{queue, i, count}
	}
	return all
}

// Name is the name of the shard's queue in asynq, and of its scope in the limiter: "crawl.7". Both
// then have the same hash tag, so a Redis Cluster keeps them in one slot.
func (s Shard) Name() string { return s.Queue + "." + strconv.Itoa(s.Index) }

// parse returns the shard of that name, if its queue has so many shards.
func parse(name string, count func(queue string) int) (s Shard, ok bool) {
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return s, false
	}
	s.Queue = name[:at]
	s.Index, _ = strconv.Atoi(name[at+1:])
	s.Count = count(s.Queue)
	return s, s.Index >= 0 && s.Index < s.Count && s.Name() == name
}

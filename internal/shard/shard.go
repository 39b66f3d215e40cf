// Package shard divides queues into shards. It computes the shard of a job, the names of the shards
// and each shard's part of a limit.
package shard

import (
	"hash/fnv"
	"strconv"
)

// MaxCount is the largest number of shards of a queue.
const MaxCount = 1000

// Shard is one shard of a queue.
type Shard struct {
	Queue string
	Index int // from 0
	Count int // number of shards of the queue
}

// ForKey returns the shard of a queue for a key. All jobs with the same key are in one shard.
func ForKey(queue, key string, count int) Shard {
	h := fnv.New64a()
	h.Write([]byte(key))
	sum := h.Sum64()
	sum ^= sum >> 33 // the low bits of an FNV sum depend only on the low bits of the key's bytes
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

// Name returns the name of the shard's asynq queue, for example "crawl.7". The shard's scope has
// the same name, so a Redis Cluster keeps the keys of both in one slot.
func (s Shard) Name() string { return s.Queue + "." + strconv.Itoa(s.Index) }

package shard

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/throttle"
)

// Queue is a sharded queue with its limits. Jobs of other queues cannot use these limits.
type Queue struct {
	Name    string
	Count   int      // number of shards
	ByKey   []string // limits whose key is always the shard key
	Divided []string // limits that are divided among the shards
}

// Queues are sharded queues by name.
type Queues map[string]Queue

// NewQueues returns the queues by name, or an error if a queue is invalid or if two queues have the
// same name or limit.
func NewQueues(list ...Queue) (Queues, error) {
	queues, homes := Queues{}, map[string]string{}
	for _, q := range list {
		wrong := func(field string, value any, want string) error {
			return fmt.Errorf("shards of queue %s: %w", q.Name, &throttle.FieldError{Field: field, Value: fmt.Sprint(value), Want: want})
		}
		if err := asynqdb.ValidateQueue(q.Name); err != nil {
			return nil, fmt.Errorf("shards: %w", err)
		}
		if _, twice := queues[q.Name]; twice || q.Name == "" {
			return nil, wrong("queue", strconv.Quote(q.Name), "want a name, given only once")
		}
		if q.Count < 1 || q.Count > MaxCount {
			return nil, wrong("count", q.Count, fmt.Sprintf("want 1 to %d", MaxCount))
		}
		for _, limit := range slices.Concat(q.ByKey, q.Divided) {
			if other, used := homes[limit]; used {
				return nil, wrong("limit", limit, fmt.Sprintf("queue %s uses it already; want another limit", other))
			}
			homes[limit] = q.Name
		}
		queues[q.Name] = q
	}
	return queues, nil
}

// Count returns the number of shards of a queue. It is 0 for a queue that is not sharded.
func (q Queues) Count(queue string) int { return q[queue].Count }

// Names returns the names of a queue's shards, or the queue's own name if it is not sharded.
func (q Queues) Names(queue string) (names []string) {
	for _, part := range All(queue, q.Count(queue)) {
		names = append(names, part.Name())
	}
	if len(names) == 0 {
		return []string{queue}
	}
	return names
}

// ShardNamed returns the shard with that name, or the zero Shard for any other asynq queue.
func (q Queues) ShardNamed(name string) Shard {
	at := strings.LastIndexByte(name, '.')
	if at < 0 {
		return Shard{}
	}
	part := Shard{Queue: name[:at], Count: q.Count(name[:at])}
	part.Index, _ = strconv.Atoi(name[at+1:])
	if part.Index < 0 || part.Index >= part.Count || part.Name() != name {
		return Shard{}
	}
	return part
}

// QueueOf returns the queue of the shard with that name, or the name itself for any other asynq
// queue.
func (q Queues) QueueOf(name string) string {
	if part := q.ShardNamed(name); part.Count > 0 {
		return part.Queue
	}
	return name
}

// Home returns the sharded queue to which a limit belongs, and whether the limit is divided. For a
// limit of the queues without shards it returns the zero Queue.
func (q Queues) Home(limit string) (home Queue, divided bool) {
	for _, home := range q {
		if slices.Contains(home.ByKey, limit) {
			return home, false
		}
		if slices.Contains(home.Divided, limit) {
			return home, true
		}
	}
	return Queue{}, false
}

// Places returns the shards that count a key of a limit. These are all shards of the limit's queue
// if the limit is divided, or if key is nil, which means all keys. The zero Shard stands for the
// scope of the queues without shards.
func (q Queues) Places(limit string, key *string) []Shard {
	switch home, divided := q.Home(limit); {
	case home.Name == "":
		return []Shard{{}}
	case divided || key == nil:
		return All(home.Name, home.Count)
	default:
		return []Shard{ForKey(home.Name, *key, home.Count)}
	}
}

// Join returns a limit that allows as much as the given parts of the limit, one for each shard,
// allow together. The result is paused if any part is. For a limit that is not divided, everything
// else is that of the first part.
func (q Queues) Join(limit string, parts []throttle.Limit) throttle.Limit {
	whole := parts[0]
	for _, part := range parts[1:] {
		whole.Paused = whole.Paused || part.Paused
	}
	if _, divided := q.Home(limit); !divided {
		return whole
	}
	for _, part := range parts[1:] {
		if windowed(whole.Kind) {
			whole.Rate.N += part.Rate.N
		} else {
			whole.Capacity += part.Capacity
		}
	}
	n := time.Duration(len(parts))
	if !windowed(whole.Kind) {
		whole.Rate.Per /= n
	}
	if a := whole.Adapt; a != nil {
		faster := *a
		faster.Min.Per /= n
		whole.Adapt = &faster
	}
	return whole
}

// LimitsIn returns those of the limits that a shard uses: its parts of divided limits, and other
// limits without the overrides of keys in other shards. The zero Shard stands for the scope of the
// queues without shards.
func (q Queues) LimitsIn(part Shard, limits []throttle.Limit) ([]throttle.Limit, error) {
	var own []throttle.Limit
	for _, l := range limits {
		home, divided := q.Home(l.Name)
		if home.Name != part.Queue {
			continue
		}
		if divided {
			var err error
			if l, err = part.Divide(l); err != nil {
				return nil, fmt.Errorf("limit %s: %w", l.Name, err)
			}
		} else if part.Count > 0 {
			l.Overrides = maps.Clone(l.Overrides)
			maps.DeleteFunc(l.Overrides, func(key string, _ throttle.Override) bool { return ForKey(part.Queue, key, part.Count) != part })
		}
		own = append(own, l)
	}
	return own, nil
}

// UnknownLimitError is the error of Check if a sharded queue has no limit of that name.
type UnknownLimitError struct{ Limit, Queue string }

// Error implements error.
func (e *UnknownLimitError) Error() string {
	return fmt.Sprintf("limit %s is not one of queue %s: add it to the queue's divided limits", e.Limit, e.Queue)
}

// Check returns an error if a job of the queue must not use one of the needed limits, because
// another shard or scope counts that limit. part is the job's shard. It is zero if the shard is
// unknown or the queue is not sharded.
func (q Queues) Check(queue string, part Shard, needs []throttle.Need) error {
	if len(q) == 0 {
		return nil
	}
	for _, n := range needs {
		home, divided := q.Home(n.Limit)
		switch {
		case home.Name == "" && q.Count(queue) > 0:
			return &UnknownLimitError{n.Limit, queue}
		case home.Name == "":
		case home.Name != queue:
			return fmt.Errorf("limit %s belongs to the sharded queue %s: jobs of other queues cannot use it", n.Limit, home.Name)
		case divided:
		case n.Key == "":
			return fmt.Errorf("limit %s without a key: its key must be the shard key of queue %s", n.Limit, queue)
		default:
			if right := ForKey(queue, n.Key, home.Count); part.Count > 0 && right != part {
				return fmt.Errorf("limit %s counts key %s in shard %s, but this job is in %s: enqueue the job with the shard key %[2]s", n.Limit, n.Key, right.Name(), part.Name())
			}
		}
	}
	return nil
}

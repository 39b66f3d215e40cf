package fairqueue

import (
	"cmp"
	"slices"
)

// SlotOrder orders the pending jobs of a queue so that its fairness keys take turns for worker slots.
// It is start-time fair queuing (Goyal, Vin, Cheng 1996): each job gets a tag, the time at which its key
// is due, and the job with the smallest tag is next. A key without pending jobs saves up nothing. The
// jobs of a key keep their order. The zero value knows of no job.
type SlotOrder struct {
	jobs map[string]slotJob // by ID
	ends map[string]int64   // by fairness key: the tag of its next job
	now  int64              // the smallest tag of a pending job
}

type slotJob struct {
	key string
	tag int64
}

// A PendingJob is a job with the fairness key and the weight of its rule. The zero weight means 1.
type PendingJob struct {
	ID, Key string
	Weight  int
}

// Unknown returns those IDs that have no place yet.
func (o *SlotOrder) Unknown(ids []string) (unknown []string) {
	for _, id := range ids {
		if _, known := o.jobs[id]; !known {
			unknown = append(unknown, id)
		}
	}
	return unknown
}

// Update gives places to new jobs. ids are the pending jobs of the queue in their present order; jobs
// that are not among them are forgotten.
func (o *SlotOrder) Update(ids []string, added ...PendingJob) {
	pending := make(map[string]slotJob, len(ids))
	news := make(map[string]PendingJob, len(added))
	for _, j := range added {
		news[j.ID] = j
	}
	now := never
	next := map[string]int64{} // by key: the tag of the first known job behind the present one
	for _, id := range slices.Backward(ids) {
		if j, known := o.jobs[id]; known {
			pending[id], now, next[j.key] = j, min(now, j.tag), j.tag
		} else if tag, ok := next[news[id].Key]; ok && news[id].ID == id {
			pending[id] = slotJob{news[id].Key, tag} // it came back to the head, in front of jobs of its key
		}
	}
	o.jobs = pending
	if now < never {
		o.now = max(o.now, now)
	} else {
		o.ends = nil // all jobs that had a place have been taken
	}
	if o.ends == nil {
		o.ends = map[string]int64{}
	}
	for _, id := range ids {
		j, isNew := news[id]
		if _, placed := o.jobs[id]; isNew && !placed {
			tag := max(o.now, o.ends[j.Key])
			o.jobs[id] = slotJob{j.Key, tag}
			o.ends[j.Key] = tag + max(1, unit/int64(max(1, j.Weight)))
		}
	}
	for key, end := range o.ends {
		if end <= o.now {
			delete(o.ends, key)
		}
	}
}

// FirstMoved returns up to n jobs that are to run first, in their order, and among how many jobs at
// the head of ids they are. It returns no job if these already are at the head in that order. Jobs
// without a place stay behind all others.
func (o *SlotOrder) FirstMoved(ids []string, n int) (first []string, among int) {
	positions, tags := make([]int, len(ids)), make([]int64, len(ids))
	for i, id := range ids {
		positions[i], tags[i] = i, never
		if j, known := o.jobs[id]; known {
			tags[i] = j.tag
		}
	}
	slices.SortStableFunc(positions, func(a, b int) int { return cmp.Compare(tags[a], tags[b]) })
	positions = positions[:min(n, len(ids))]
	for last := len(positions) - 1; last >= 0 && positions[last] == last; last-- {
		positions = positions[:last]
	}
	for _, at := range positions {
		first, among = append(first, ids[at]), max(among, at+1)
	}
	return first, among
}

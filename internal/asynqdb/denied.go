package asynqdb

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/script"
)

const (
	// countPage is the number of jobs that one call of the script counts, and countPages the most
	// calls of one CountDenied. A call takes about a millisecond of Redis's time.
	countPage, countPages = 1000, 20
	// askTime is how long a job that was just taken may have no permits yet, on a slow machine.
	askTime = 250 * time.Millisecond
)

var countDeniedScript = script.New("asynq/count_denied")

// CountDenied returns how many jobs of a queue's retry set, which has size jobs, were denied and
// wait for permits. In a set of more than 20,000 jobs it counts 20,000 that are spread evenly over
// the set, and the result is an estimate.
func (db DB) CountDenied(ctx context.Context, queue string, size int) (int, error) {
	pages, read, denied := min(countPages, (size+countPage-1)/countPage), 0, 0
	for i := range pages {
		first := size * i / pages
		n, err := countDeniedScript.Run(ctx, db.Redis, []string{Key(queue, Retry)}, Hash(queue, ""), first, min(first+countPage, size*(i+1)/pages)-1).Int64Slice()
		if err != nil {
			return 0, err
		}
		read, denied = read+int(n[0]), denied+int(n[1])
	}
	return int(math.Round(float64(size) * float64(denied) / float64(max(1, read)))), nil
}

// JustTaken reports which active jobs of a queue may not have permits yet, although they are active:
// a worker has taken them a moment ago, they were not granted, and jobs of the queue are denied.
func (db DB) JustTaken(ctx context.Context, queue string, ids ...string) ([]bool, error) {
	just := make([]bool, len(ids))
	waits, err := db.Redis.Exists(ctx, Key(queue, Retry)).Result()
	if err != nil || waits == 0 {
		return just, err
	}
	denied, err := db.Fields(ctx, queue, "denied", ids...)
	if err != nil {
		return nil, err
	}
	names, err := db.Fields(ctx, queue, "pending_since", ids...)
	for i, name := range names {
		at, _ := strconv.ParseInt(name, 10, 64)
		age := time.Since(time.Unix(0, at))
		just[i] = denied[i] == "" && age >= 0 && age < askTime
	}
	return just, err
}

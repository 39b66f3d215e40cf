package waitdb

import (
	"context"
	"strconv"
	"strings"
)

// Waiters counts the queued jobs that wait for permits of a limit, under all its
// keys, or were called for them, and want at least so many of one key: whom a change
// of the limit would hit. With least 0 that is all who wait, and with one more than the
// MaxCost of a new definition those who could never run by it. It reads all waiting
// jobs of the scope, a part at a time. Jobs that come and go meanwhile may be counted
// or not.
func (db *DB) CountWaiting(ctx context.Context, limit string, least int) (int, error) {
	return db.waiters(ctx, least, func(meter string) bool { return strings.HasPrefix(meter, limit+"|") })
}

// KeyWaiters is Waiters for one key of the limit.
func (db *DB) CountWaitingForKey(ctx context.Context, limit, key string, least int) (int, error) {
	return db.waiters(ctx, least, func(meter string) bool { return meter == limit+"|"+key })
}

func (db *DB) waiters(ctx context.Context, least int, isOf func(meter string) bool) (int, error) {
	waiters := map[string]bool{} // a scan may tell one twice
	scan := db.rdb.HScan(ctx, db.prefix+"jobs", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		job := scan.Val()
		scan.Next(ctx)
		if wantsOf(scan.Val(), isOf) >= least {
			waiters[job] = true
		}
	}
	return len(waiters), unavailable(scan.Err())
}

// wantsOf is how many permits a job wants at most of one of some meters, by its record;
// -1 where it needs none of them. A record is six lines, the last of which are the costs
// and the queue, and then the meters, limit|key, one a line.
func wantsOf(record string, isOf func(meter string) bool) int {
	lines := strings.Split(record, "\n")
	most := -1
	for i, cost := range strings.Split(lines[min(4, len(lines)-1)], ",") {
		if i+6 < len(lines) && isOf(lines[i+6]) {
			n, _ := strconv.Atoi(cost)
			most = max(most, n)
		}
	}
	return most
}

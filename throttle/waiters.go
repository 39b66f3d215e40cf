package throttle

import (
	"context"
	"strings"
)

// Waiters counts the queued jobs that wait for permits of a limit, under all its
// keys, or were called for them: whom a change of the limit would hit. It reads all
// waiting jobs of the scope, a part at a time. Jobs that come and go meanwhile may
// be counted or not, and one that stays is counted at least once.
func (r *Redis) Waiters(ctx context.Context, limit string) (int, error) {
	n := 0
	scan := r.rdb.HScan(ctx, r.prefix+"jobs", 0, "*", 1000).Iterator()
	for scan.Next(ctx) { // the job's name
		scan.Next(ctx)
		// A record ends with the meters, limit|key, one a line.
		if strings.Contains(scan.Val(), "\n"+limit+"|") {
			n++
		}
	}
	return n, unavailable(scan.Err())
}

package throttle

import (
	"context"
	"strings"
)

// Waiters counts the queued jobs that wait for permits of a limit, under all its
// keys, or were called for them: whom a change of the limit would hit. It reads all
// waiting jobs of the scope, a part at a time. Jobs that come and go meanwhile may
// be counted or not.
func (r *Redis) Waiters(ctx context.Context, limit string) (int, error) {
	waiters := map[string]bool{} // a scan may tell one twice
	scan := r.rdb.HScan(ctx, r.prefix+"jobs", 0, "*", 1000).Iterator()
	for scan.Next(ctx) {
		job := scan.Val()
		scan.Next(ctx)
		// A record is six lines, the last of which is the queue, and then the meters,
		// limit|key, one a line.
		if lines := strings.SplitN(scan.Val(), "\n", 7); len(lines) == 7 && strings.Contains("\n"+lines[6], "\n"+limit+"|") {
			waiters[job] = true
		}
	}
	return len(waiters), unavailable(scan.Err())
}

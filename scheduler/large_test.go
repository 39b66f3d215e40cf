package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/proctest"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// slowLink is a connection on which a reply of more than a number of bytes takes longer than the
// client waits.
type slowLink struct {
	most    int // bytes of a reply in time
	largest int // bytes of the largest reply so far that came in time
	sent    int // bytes of the largest script call so far whose first key is a heartbeat's
}

func (l *slowLink) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); len(args) > 3 && strings.HasPrefix(fmt.Sprint(args[3]), "asynq:servers:") {
		l.sent = max(l.sent, sizeOf(args))
	}
	err := next(ctx, cmd)
	reply, ok := cmd.(*redis.Cmd)
	if !ok {
		return err
	}
	size := sizeOf(reply.Val())
	if size > l.most {
		time.Sleep(3 * time.Second)
		cmd.SetErr(os.ErrDeadlineExceeded)
		return os.ErrDeadlineExceeded
	}
	l.largest = max(l.largest, size)
	return err
}

// sizeOf returns the bytes of the texts in a reply.
func sizeOf(reply any) (n int) {
	switch v := reply.(type) {
	case string:
		return len(v)
	case []byte:
		return len(v)
	case []any:
		for _, item := range v {
			n += sizeOf(item)
		}
	}
	return n
}

// A fetch is bounded by bytes, not by the free slots alone. If a reply does not come in time, the
// repeated fetch takes half as many bytes, down to one job. The others go back and run once each.
func TestFetch_LargeJobs(t *testing.T) {
	for name, row := range map[string]struct {
		jobs, bytes, slots int
		most               int // bytes of a reply that comes in time
		warned             bool
	}{
		"2 MB, 10 slots, fast":       {jobs: 20, bytes: 2e6, slots: 10, most: 9e6},
		"2 MB, 10 slots, slow":       {jobs: 20, bytes: 2e6, slots: 10, most: 5e6, warned: true},
		"2 MB, 10 slots, one by one": {jobs: 12, bytes: 2e6, slots: 10, most: 2.1e6, warned: true},
		"300 kB, 64 slots":           {jobs: 128, bytes: 3e5, slots: 64, most: 3e6, warned: true},
		"one job of 9 MB":            {jobs: 2, bytes: 9e6, slots: 10, most: 1e7},
		"small jobs":                 {jobs: 300, bytes: 100, slots: 64, most: 9e6},
	} {
		t.Run(name, func(t *testing.T) {
			var log proctest.Log
			link := &slowLink{most: 1e9}
			s := settings{config: asynq.Config{Concurrency: row.slots}, rule: always(Rule{}), handle: takes(6 * time.Second), hooks: []redis.Hook{redistest.Hook(link.around)}}
			s.log = slog.New(slog.NewTextHandler(&log, nil))
			virtual(t, s, func(t *testing.T, st *stack) {
				link.most = row.most
				payload := bytes.Repeat([]byte("x"), row.bytes)
				for i := range row.jobs {
					st.enqueue(asynq.NewTask("job", payload), numbered("job", i))
				}
				time.Sleep(2 * time.Minute)
				st.wantOnceEach(row.jobs)
				if most := max(asynqdb.MaxReply, row.bytes) + 10_000; link.largest > most {
					t.Errorf("a reply has %d bytes, want at most %d", link.largest, most)
				}
				if most := 100_000; link.sent == 0 || link.sent > most {
					t.Errorf("a heartbeat has %d bytes, want up to %d", link.sent, most)
				}
				if warned := strings.Contains(log.String(), "the connection to Redis is too slow for the jobs of one fetch"); warned != row.warned {
					t.Errorf("the warning is there: %t, want %t:\n%s", warned, row.warned, log.String())
				}
				st.wantNotReported()
			})
		})
	}
}

package asynqdb_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// A Dequeue takes as many jobs as fit into its bytes, one at least. A later repeat returns half
// as many bytes, and the jobs beyond them are the next that run.
func TestDequeue_Bytes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		db, client := asynqdb.New(rdb), asynq.NewClientFromRedisClient(rdb)
		const jobs = 10
		for i := range jobs {
			if _, err := client.Enqueue(asynq.NewTask("job", bytes.Repeat([]byte("x"), asynqdb.MinReply)), asynq.TaskID(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		fetch := func(d *asynqdb.Dequeue, n int, left bool, want ...string) {
			t.Helper()
			found, err := db.Dequeue(t.Context(), d, n)
			var ids []string
			for _, j := range found {
				ids = append(ids, j.ID)
			}
			if err != nil || !slices.Equal(ids, want) || d.Left != left {
				t.Errorf("jobs %v, left %t, %v; want %v, left %t", ids, d.Left, err, want, left)
			}
			active, pending := rdb.LLen(t.Context(), asynqdb.Key("default", asynqdb.Active)).Val(), rdb.LLen(t.Context(), asynqdb.Key("default", asynqdb.Pending)).Val()
			if leases := rdb.ZCard(t.Context(), asynqdb.Key("default", asynqdb.Lease)).Val(); active != leases || active+pending != jobs {
				t.Errorf("%d active jobs, %d leases, %d pending jobs; want %d jobs together", active, leases, pending, jobs)
			}
		}
		first := asynqdb.NewDequeue("default", leaseEnd, false)
		first.MaxBytes = 5 * asynqdb.MinReply // with its other fields, a message is larger than its payload
		rdb.ScriptFlush(t.Context())
		fetch(first, 8, true, "0", "1", "2", "3") // sent twice, because Redis has lost the script
		fetch(first, 8, true, "0", "1")
		fetch(first, 0, true, "0")
		fetch(first, 0, false, "0")
		second := asynqdb.NewDequeue("default", leaseEnd, false)
		fetch(second, 3, false, "1", "2", "3")
		third := asynqdb.NewDequeue("default", leaseEnd, false)
		third.MaxBytes = 1
		fetch(third, 8, true, "4")
		for _, id := range []string{"0", "1", "2", "3", "4"} {
			if state := rdb.HGet(t.Context(), asynqdb.Hash("default", id), "state").Val(); state != "active" {
				t.Errorf("job %s is %s, want it active", id, state)
			}
		}
		if state := rdb.HGet(t.Context(), asynqdb.Hash("default", "5"), "state").Val(); state != "pending" {
			t.Errorf("job 5 is %s, want it pending", state)
		}
	})
}

// Fields and pages are read in pieces of MaxReply bytes.
func TestFields_Bytes(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		db := asynqdb.New(rdb)
		var ids []string
		for i := range 7 {
			ids = append(ids, fmt.Sprint(i))
			rdb.HSet(t.Context(), asynqdb.Hash("default", ids[i]), "msg", bytes.Repeat([]byte{byte('0' + i)}, 1e6))
			rdb.LPush(t.Context(), asynqdb.Key("default", asynqdb.Pending), ids[i])
		}
		rdb.HSet(t.Context(), asynqdb.Hash("default", "6"), "result", bytes.Repeat([]byte("y"), 2e6))
		first, err := db.FirstFields(t.Context(), "default", "msg", 2.5e6, ids...)
		if err != nil || len(first) != 2 {
			t.Errorf("%d values, %v; want those that fit", len(first), err)
		}
		if first, err = db.FirstFields(t.Context(), "default", "msg", 1, ids...); err != nil || len(first) != 1 {
			t.Errorf("%d values, %v; want one at least", len(first), err)
		}
		all, err := db.Fields(t.Context(), "default", "msg", append(ids, "none")...)
		if err != nil || len(all) != 8 || len(all[6]) != 1e6 || all[6][0] != '6' || all[7] != "" {
			t.Errorf("%d values, %v; want all in order", len(all), err)
		}
		for _, row := range []struct{ start, size, want int }{
			{0, 100, 2},  // the largest has 3 MB
			{0, 6, 6},    // jobs of 1 MB
			{0, 20, 2},   // 8 MB would be enough for two of the largest
			{6, 1, 1},    //
			{50, 50, 50}, // none
		} {
			if n, err := db.PieceSize(t.Context(), "default", asynqdb.Pending, row.start, row.size); err != nil || n != row.want {
				t.Errorf("jobs %d to %d: pieces of %d, %v; want %d", row.start, row.start+row.size-1, n, err, row.want)
			}
		}
	})
}

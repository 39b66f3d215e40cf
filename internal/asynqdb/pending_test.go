package asynqdb_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestReorder_GrantedFirst: Reorder moves the jobs that are still pending behind granted ones, loses no
// job, and may be repeated. One server at a time reads the jobs.
func TestReorder_GrantedFirst(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx := t.Context()
		db := asynqdb.New(rdb)
		granted := addDenied(t, db, "granted")
		given := addDenied(t, db, "given")
		for i := range 3 {
			add(t, rdb, fmt.Sprint("a", i))
		}
		add(t, rdb, "b")
		if _, err := db.Promote(ctx, named(granted)...); err != nil {
			t.Fatal(err)
		}
		read := func(server string, want ...string) {
			t.Helper()
			ids, granted, ok, err := db.Pending(ctx, "default", server, time.Minute, 100)
			if err != nil || ok != (want != nil) || ok && granted != 1 || !slices.Equal(ids, want) {
				t.Errorf("%s reads %v, %d granted, %v, %v; want %v", server, ids, granted, ok, err, want)
			}
		}
		if err := asynq.NewInspectorFromRedisClient(rdb).RunTask("default", given); err != nil { // no promotion
			t.Fatal(err)
		}
		read("one", "a0", "a1", "a2", "b", "given")
		read("other")
		for range 2 {
			if err := db.Reorder(ctx, "default", 5, []string{"a0", "gone", "b"}); err != nil {
				t.Fatal(err)
			}
		}
		read("one", "a0", "b", "a1", "a2", "given")
		if err := db.Reorder(ctx, "default", 6, []string{"given", "b"}); err != nil {
			t.Fatal(err)
		}
		read("one", "given", "b", "a0", "a1", "a2")
		if err := db.Reorder(ctx, "default", 4, []string{"given", "a0", "a2"}); err != nil { // a2 is not among the first four
			t.Fatal(err)
		}
		if got, want := order(t, rdb, 6), []string{"granted", "given", "a0", "b", "a1", "a2"}; !slices.Equal(got, want) {
			t.Errorf("asynq's server runs %v, want %v", got, want)
		}
	})
}

// TestReorder_LongList: more jobs than a command of a script can have as arguments.
func TestReorder_LongList(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		key, want := asynqdb.Key("default", asynqdb.Pending), []string{}
		for i := range 9001 {
			want = append(want, fmt.Sprint(i))
		}
		if err := rdb.LPush(t.Context(), key, want).Err(); err != nil {
			t.Fatal(err)
		}
		if err := asynqdb.New(rdb).Reorder(t.Context(), "default", 9001, []string{"9000", "0", "4500"}); err != nil {
			t.Fatal(err)
		}
		got, err := rdb.LRange(t.Context(), key, 0, -1).Result()
		slices.Reverse(got)
		want = slices.Concat([]string{"9000", "0", "4500"}, slices.DeleteFunc(want, func(id string) bool { return id == "9000" || id == "0" || id == "4500" }))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, the list begins with %v", err, got[:5])
		}
	})
}

// TestReorder_DamagedJob: a job whose hash is no hash keeps no other job from its turn, and is lost from
// the list only when a server takes it.
func TestReorder_DamagedJob(t *testing.T) {
	redistest.Both(t, func(t *testing.T, rdb redis.UniversalClient) {
		ctx, db := t.Context(), asynqdb.New(rdb)
		for _, id := range []string{"damaged", "a", "b"} {
			add(t, rdb, id)
		}
		rdb.Del(ctx, asynqdb.Hash("default", "damaged"))
		rdb.Set(ctx, asynqdb.Hash("default", "damaged"), "text", 0)
		ids, _, ok, err := db.Pending(ctx, "default", "one", time.Minute, 100)
		if err != nil || !ok || len(ids) != 3 {
			t.Fatalf("%v, %v, %v; want three jobs", ids, ok, err)
		}
		if messages, err := db.FirstFields(ctx, "default", asynqdb.FieldMessage, 1<<20, ids...); err != nil || len(messages) != 3 || messages[0] != "" || messages[2] == "" {
			t.Errorf("messages %q, %v; want none of the first job", messages, err)
		}
		if err := db.Reorder(ctx, "default", 3, []string{"b"}); err != nil {
			t.Error(err)
		}
		if got, err := rdb.LRange(ctx, asynqdb.Key("default", asynqdb.Pending), 0, -1).Result(); err != nil || !slices.Equal(got, []string{"a", "damaged", "b"}) {
			t.Errorf("the list is %v, %v", got, err)
		}
	})
}

package redistest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestMini_Clock runs two bubbles, because state left by the first would break the second.
func TestMini_Clock(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			_, rdb := redistest.Mini(t)
			ctx := t.Context()
			start := rdb.Time(ctx).Val()
			rdb.Set(ctx, "key", "value", time.Hour)
			time.Sleep(59 * time.Minute)
			early := rdb.Exists(ctx, "key").Val()
			time.Sleep(2 * time.Minute)
			if late := rdb.Exists(ctx, "key").Val(); early != 1 || late != 0 {
				t.Errorf("the key exists after 59 minutes: %d, after 61: %d; want 1, 0", early, late)
			}
			if got := rdb.Time(ctx).Val().Sub(start); got != 61*time.Minute {
				t.Errorf("TIME went on by %v, want 1h1m", got)
			}
		})
	}
}

func TestMini_NoWaitForConnections(t *testing.T) {
	crowd := func(t *testing.T, n int) {
		_, rdb := redistest.Mini(t)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				if err := rdb.BLPop(t.Context(), time.Second, "nothing").Err(); !errors.Is(err, redis.Nil) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if waited := rdb.PoolStats().WaitCount; waited > 0 {
			t.Errorf("%d of %d waited for a connection", waited, n)
		}
	}
	for range 2 {
		synctest.Test(t, func(t *testing.T) { crowd(t, 500) })
	}
}

// TestMini_Scripts compares the first run of a script, by miniredis, with the second, by the machine.
func TestMini_Scripts(t *testing.T) {
	_, rdb := redistest.Mini(t)
	for _, text := range []string{
		"return 7", "return 'text'", "return nil", "return true", "return false", "return {1, 'b', {'c', false}, nil, 5}",
		"return redis.status_reply('DONE')", "return redis.error_reply('ERR not so')", "return ", "return global",
		"global = 1", "error('no')", "return KEYS[1] .. ARGV[1] .. #KEYS .. #ARGV",
		"return redis.call('SET', KEYS[1], 1.5)", "return redis.call('GET', KEYS[1])", "return redis.call('GET', 'none')",
		"return redis.call('MGET', KEYS[1], 'none')", "return redis.call('INCR', KEYS[1])", "return redis.call('NONE')",
		"return redis.pcall('INCR', KEYS[1])", "return redis.pcall('SET', KEYS[1], 2).ok", "return redis.call('TIME')[1] + 0 > 0",
	} {
		script := redis.NewScript(text)
		run := func(run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) string {
			got, err := run(t.Context(), rdb, []string{"key"}, "arg").Result()
			text, _, _ := strings.Cut(fmt.Sprint(err), "compiling") // the rest of the error differs
			return fmt.Sprintf("%#v, %s", got, text)
		}
		if first, then := run(script.Eval), run(script.EvalSha); first != then {
			t.Errorf("%s: %s, and then %s", text, first, then)
		}
	}
}

func TestInScript(t *testing.T) {
	m, rdb := redistest.Mini(t)
	var seen []string
	redistest.Before(m, func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd == "GET" {
			seen = append(seen, fmt.Sprint(redistest.InScript(c)))
		}
		return false
	})
	script := redis.NewScript("return redis.call('GET', 'key')")
	for range 2 { // first by miniredis, then by the machine
		_ = script.Run(t.Context(), rdb, nil).Err()
	}
	_ = rdb.Get(t.Context(), "key").Err()
	if diff := cmp.Diff([]string{"true", "false"}, seen[len(seen)-2:]); diff != "" {
		t.Errorf("in a script, and alone (-want +got):\n%s", diff)
	}
}

package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/internal/waitdb"
	"github.com/headgate/headgate/throttle"
)

// texts are what people can write into a meter's state. With wrongType the key is a
// stream.
var texts = map[string]string{
	"garbage": "abc", "nothing": "", "lines": "1\n2\n3 4 5 6\n", "zeros": "0 0 0 0;0 0 0", "negative": "-1 -5 -1 -1",
	"fractions": "1.5 1.5 1e300 nan", "wrong type": wrongType,
}

const wrongType = "a stream"

// put writes a text in place of a meter's state: as a string, an entry of a list or a holder of a
// set.
func put(t *testing.T, rdb redis.UniversalClient, key, text string) {
	t.Helper()
	must(t, rdb.Del(background, key).Err())
	switch {
	case text == wrongType:
		must(t, rdb.XAdd(background, &redis.XAddArgs{Stream: key, Values: []string{"a", "b"}}).Err())
	case strings.Contains(key, "sliding_log"):
		must(t, rdb.RPush(background, key, text, text, text).Err())
	case strings.Contains(key, "concurrency"):
		must(t, rdb.ZAdd(background, key, redis.Z{Score: 1e300, Member: text}).Err())
	default:
		must(t, rdb.Set(background, key, text, 0).Err())
	}
}

// TestMeter_Corrupt checks that every call counts a corrupt meter as unused, and that calls in the
// same batch get their permits.
func TestMeter_Corrupt(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *stage) {
		for name, text := range texts {
			for _, l := range limittest.Threes {
				t.Run(name+"/"+l.Name, func(t *testing.T) {
					s.restart(t)
					define(t, s, l)
					state := hg("m:" + string(l.Kind) + ":" + l.Name + "|bad")
					for _, use := range []func(t *testing.T, l throttle.Limit, s *stage){together, look, settle, change} {
						cost := 2
						if l.Kind == throttle.Concurrency {
							cost = 1 // its holder is in one set
						}
						_, err := s.AllowN(t.Context(), l.Name, "bad", cost)
						must(t, err)
						put(t, s.rdb, state, text)
						use(t, l, s)
					}
				})
			}
		}
	})
}

// together requests permits for ten keys at once. The meter of one key is corrupt.
func together(t *testing.T, l throttle.Limit, s *stage) {
	t.Helper()
	errs := make(chan error)
	for i := range 10 {
		key := fmt.Sprint(i, s.now.UnixMicro())
		if i == 5 {
			key = "bad"
		}
		go func() {
			d, err := s.Allow(t.Context(), l.Name, key)
			if err == nil && !d.OK() {
				err = fmt.Errorf("key %s: %s", key, d)
			}
			errs <- err
		}()
	}
	for range 10 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	s.wait(2 * time.Hour)
}

func look(t *testing.T, l throttle.Limit, s *stage) {
	t.Helper()
	bad, good := throttle.Need{Limit: l.Name, Key: "bad"}, throttle.Need{Limit: l.Name, Key: "good"}
	meters, err := waitdb.New(s.redis).Meters(t.Context(), true, good, bad, good)
	must(t, err)
	for _, m := range meters {
		expect(t, "left of "+m.Key, m.Left, 3)
		expect(t, "the state of "+m.Key, m.State != nil, true)
	}
	expect(t, "the next call", ask(t, s, l.Name, 1).Outcome, allowed)
	s.wait(2 * time.Hour)
}

func settle(t *testing.T, l throttle.Limit, s *stage) {
	t.Helper()
	d, err := s.AllowN(t.Context(), l.Name, "k", 2)
	must(t, err)
	state := hg("m:" + string(l.Kind) + ":" + l.Name + "|k")
	if s.rdb.Type(background, state).Val() == "string" {
		must(t, s.rdb.Set(background, state, "abc", 0).Err())
	}
	for _, cost := range []int{1, 3, 0} {
		must(t, s.Settle(t.Context(), d, l.Name, "k", cost))
	}
	s.wait(2 * time.Hour)
}

func change(t *testing.T, l throttle.Limit, s *stage) {
	t.Helper()
	if l.Kind != throttle.Concurrency {
		must(t, s.SetKey(t.Context(), l.Name, "bad", throttle.Override{Rate: throttle.Rate{N: 2, Per: l.Rate.Per}}))
		must(t, s.UnsetKey(t.Context(), l.Name, "bad"))
	}
	d, err := s.Allow(t.Context(), l.Name, "bad")
	must(t, err)
	expect(t, "the key with the corrupt meter", d.Outcome, allowed)
}

// TestOverride_Corrupt checks that a malformed record of a key is ignored.
func TestOverride_Corrupt(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		for _, record := range []string{"", "abc", "set funnel", "set funnel 5 0 0 0 0 0 0 0 0 0 0", "- - a b c d e f g h i j k", strings.Repeat("1 ", 40)} {
			s.restart(t)
			define(t, s, throttle.Limit{Name: "l", Kind: throttle.Funnel, Rate: throttle.PerSecond(2), Capacity: 2, Adapt: &throttle.Adapt{}})
			must(t, s.SetKey(t.Context(), "l", "k", throttle.Override{Capacity: 9}))
			must(t, s.rdb.HSet(background, hg("overrides:l"), "k", record).Err())
			expect(t, fmt.Sprintf("with %q", record), ask(t, s, "l", 1).Remaining, 1)
			must(t, s.SetKey(t.Context(), "l", "k", throttle.Override{Capacity: 5}))
			expect(t, "once it is set again", ask(t, s, "l", 0).Remaining, 4)
		}
	})
}

// TestAllow_ScriptFails checks that a script which fails for one call of a batch fails for that
// call alone. The error names the meters and the remedy, without Lua's words.
func TestAllow_ScriptFails(t *testing.T) {
	rdb := redistest.Real(t)
	l := throttle.New(rdb, throttle.Options{})
	define(t, l, limittest.Threes...)
	rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") && strings.Contains(fmt.Sprint(cmd.Args()...), "not this one") {
			err := next(ctx, redis.NewCmd(ctx, "eval", "return {} + 1", 0))
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}))
	for _, limit := range []string{"funnel", "log"} { // the fast path and the whole script
		errs := make(chan error)
		for i := range 20 {
			key := fmt.Sprint(i)
			if i == 5 {
				key = "not this one"
			}
			go func() {
				_, err := l.Allow(t.Context(), limit, key)
				errs <- err
			}()
		}
		var failed []string
		for range 20 {
			if err := <-errs; err != nil {
				failed = append(failed, err.Error())
				expect(t, "an unavailable limiter", errors.Is(err, throttle.ErrUnavailable), true)
			}
		}
		if len(failed) != 1 || !strings.Contains(failed[0], `: headgate-worker limits reset `+limit+` --key "not this one": `) || strings.Contains(failed[0], "user_script") {
			t.Errorf("of limit %s failed: %q", limit, failed)
		}
	}
}

// TestAllow_ManyMeters checks that calls which need more meters than one script may use are split,
// and that a single call with too many needs is an error.
func TestAllow_ManyMeters(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	onRedis(t, func(t *testing.T, s *stage) {
		define(t, s, limittest.Threes...)
		for _, limit := range []string{"funnel", "log"} {
			errs := make(chan error)
			for i := range 12 {
				go func() {
					var needs []throttle.Need
					for k := range script.MaxMeters {
						needs = append(needs, throttle.Need{Limit: limit, Key: fmt.Sprint(i, "-", k)})
					}
					d, err := s.AllowAll(t.Context(), needs...)
					if err == nil && !d.OK() {
						err = errors.New(d.String())
					}
					errs <- err
				}()
			}
			for range 12 {
				must(t, <-errs)
			}
		}
		_, err := s.AllowAll(t.Context(), make([]throttle.Need, script.MaxMeters+1)...)
		var field *throttle.FieldError
		if !errors.As(err, &field) || field.Error() != "needs 1001: want at most 1000 of one call" {
			t.Errorf("%v, want that there are too many needs", err)
		}
	})
}

// TestDefinition_PartLost checks that a limit with an incomplete definition counts as lost, and is
// defined again.
func TestDefinition_PartLost(t *testing.T) {
	onRedis(t, func(t *testing.T, s *stage) {
		for _, l := range limittest.Threes {
			for name, corrupt := range map[string]func(limit string) error{
				"only what the file said is left": func(limit string) error {
					file := s.rdb.HGet(background, limit, "file").Val()
					must(t, s.rdb.Del(background, limit, hg("summaries"), hg("limits")).Err())
					return s.rdb.HSet(background, limit, "file", file).Err()
				},
				"its summary is gone":    func(string) error { return s.rdb.Del(background, hg("summaries")).Err() },
				"its summary is garbage": func(string) error { return s.rdb.HSet(background, hg("summaries"), l.Name, "abc").Err() },
				"its numbers are gone": func(limit string) error {
					must(t, s.rdb.HDel(background, hg("summaries"), l.Name).Err())
					return s.rdb.HDel(background, limit, "kind", "n", "period_us", "capacity", "margin_us", "lease_us").Err()
				},
				"it is a text": func(limit string) error {
					must(t, s.rdb.Del(background, limit).Err())
					return s.rdb.Set(background, limit, "x", 0).Err()
				},
				"the summaries are a text": func(string) error {
					must(t, s.rdb.Del(background, hg("summaries")).Err())
					return s.rdb.Set(background, hg("summaries"), "x", 0).Err()
				},
			} {
				t.Run(l.Name+"/"+name, func(t *testing.T) {
					s.restart(t)
					s := redisStage(s.rdb, s.setTime)
					define(t, s, l)
					must(t, corrupt(hg("limit:"+l.Name)))
					d, err := s.AllowAll(t.Context(), one(l.Name))
					must(t, err)
					expect(t, "the answer", d.Outcome, allowed)
					if name == "its numbers are gone" || name == "only what the file said is left" {
						limits, err := s.Limits(t.Context())
						must(t, err)
						expect(t, "limits", len(limits), 1)
						expect(t, "its kind", limits[0].Kind, l.Kind)
					}
				})
			}
		}
	})
}

// hasty is a client that gives up at once when the server does not answer.
func hasty(t *testing.T, server *redistest.Server) *redis.Client {
	t.Helper()
	options := server.Options()
	options.MaxRetries = -1
	options.DialerRetries = 1
	options.PoolSize = 100 // a full pool would remember that the server was gone
	rdb := redis.NewClient(options)
	t.Cleanup(func() {
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
	})
	return rdb
}

// TestRedis_Outage checks that every method returns ErrUnavailable while Redis is down, that permits
// in use are still in use when it is back, and that limits which Define got meanwhile are defined
// then.
func TestRedis_Outage(t *testing.T) {
	server := redistest.Run(t, "--appendonly", "yes", "--appendfsync", "always")
	l := throttle.New(hasty(t, server), throttle.Options{})
	define(t, l, log(3))
	ask(t, l, "log", 1)

	must(t, server.Stop())
	need := throttle.Need{Limit: "log", Key: "k"}
	for verb, call := range map[string]func(context.Context) error{
		"Allow":    func(ctx context.Context) error { _, err := l.Allow(ctx, "log", "k"); return err },
		"AllowAll": func(ctx context.Context) error { _, err := l.AllowAll(ctx, need); return err },
		"Peek":     func(ctx context.Context) error { _, err := l.AllowN(ctx, "log", "k", 0); return err },
		"Throttle": func(ctx context.Context) error { _, err := l.Throttle(ctx, "k", 1, 1, time.Second, 1); return err },
		"Extend":   func(ctx context.Context) error { _, err := l.Extend(ctx, "h", need); return err },
		"Free":     func(ctx context.Context) error { return l.Free(ctx, "h", need) },
		"Define":   func(ctx context.Context) error { return l.Define(ctx, log(3), perMinute("a", 3), perMinute("b", 3)) },
		"Set":      func(ctx context.Context) error { return l.Set(ctx, log(3)) },
		"Delete":   func(ctx context.Context) error { return l.Delete(ctx, "log") },
		"Limits":   func(ctx context.Context) error { _, err := l.Limits(ctx); return err },
		"Pause":    func(ctx context.Context) error { return l.Pause(ctx, "log") },
		"Resume":   func(ctx context.Context) error { return l.Resume(ctx, "log") },
		"Block":    func(ctx context.Context) error { return l.Block(ctx, "log", "k", time.Now()) },
		"Reset":    func(ctx context.Context) error { return l.Reset(ctx, "log", "k") },
	} {
		if err := call(t.Context()); !errors.Is(err, throttle.ErrUnavailable) || errors.Is(err, throttle.ErrNoLimit) {
			t.Errorf("%s without Redis: %v, want ErrUnavailable", verb, err)
		}
	}

	must(t, server.Restart())
	expect(t, "left when it is back", ask(t, l, "log", 1).Remaining, 1)
	expect(t, "a limit that was defined while it was down", ask(t, l, "b", 1).Outcome, allowed)
}

// TestAllow_CallerGivesUp: of calls whose contexts end while Redis is slow, those not
// sent yet are never sent, and those under way give back what they took.
func TestAllow_CallerGivesUp(t *testing.T) {
	const n = 100
	for _, l := range []throttle.Limit{
		{Name: "l", Kind: throttle.Funnel, Rate: throttle.Every(time.Hour), Capacity: n},
		{Name: "l", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: n, Per: throttle.Day}},
		{Name: "l", Kind: throttle.SlidingWindow, Rate: throttle.Rate{N: n, Per: throttle.Day}},
		{Name: "l", Kind: throttle.FixedWindow, Rate: throttle.Rate{N: n, Per: throttle.Week}},
		{Name: "l", Kind: throttle.Concurrency, Capacity: n, Lease: throttle.Day},
	} {
		t.Run(string(l.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, rdb := redistest.Mini(t)
				limiter := throttle.New(rdb, throttle.Options{})
				define(t, limiter, l)
				expect(t, "left at first", ask(t, limiter, "l", 0).Remaining, n)
				var slow atomic.Bool
				slow.Store(true)
				rdb.AddHook(redistest.Hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
					err := next(ctx, cmd)
					if slow.Load() && strings.HasPrefix(cmd.Name(), "eval") {
						time.Sleep(time.Second) // it has taken, and its caller does not know yet
					}
					return err
				}))
				var all sync.WaitGroup
				for i := range n {
					if i == 1 {
						synctest.Wait() // the first is under way, so what follows is taken after it
					}
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
						defer cancel()
						if _, err := limiter.Allow(ctx, "l", "k"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, throttle.ErrUnavailable) {
							t.Errorf("%v, want ErrUnavailable and that the deadline is exceeded", err)
						}
					})
				}
				all.Wait()
				slow.Store(false)
				time.Sleep(time.Minute)
				synctest.Wait()
				// What leaked of a funnel meanwhile stays owed where another call took later: part
				// of a permit.
				if left := ask(t, limiter, "l", 0).Remaining; left < n-1 || left < n && l.Kind != throttle.Funnel {
					t.Errorf("%d of %d permits are left once all calls gave up", left, n)
				}
			})
		})
	}
}

package throttle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/throttle"
)

// TestSetKey checks that an override changes one key at once, and that permits in use stay in use.
func TestSetKey(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		define(t, s, throttle.Limit{Name: "host", Kind: throttle.Funnel, Rate: throttle.PerSecond(1)})
		ask(t, s, "host", 1)
		must(t, s.SetKey(ctx, "host", "k", throttle.Override{Rate: throttle.Every(10 * time.Second)}))
		d := ask(t, s, "host", 1)
		expect(t, "one owed, at the key's rate", [2]any{d.Outcome, d.RetryAfter}, [2]any{denied, 10 * time.Second})
		other, err := s.Allow(ctx, "host", "other")
		must(t, err)
		expect(t, "another key", other.ResetAfter, time.Second)
		s.wait(10 * time.Second)
		expect(t, "ready", ask(t, s, "host", 1).Outcome, allowed)
		must(t, s.UnsetKey(ctx, "host", "k"))
		expect(t, "one owed, at the limit's rate", ask(t, s, "host", 1).RetryAfter, time.Second)
	})
}

func TestLimiter_Keys(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		ctx := t.Context()
		list := func() []throttle.KeyState {
			t.Helper()
			keys, err := s.Keys(ctx, "host")
			must(t, err)
			for i := range keys {
				if s.redis != nil {
					_, one, err := s.redis.Internals().Key(ctx, "host", keys[i].Key)
					must(t, err)
					expect(t, "alone", one, keys[i])
				}
			}
			return keys
		}
		rate := throttle.Override{Rate: throttle.Every(10 * time.Second)}
		limit := throttle.Limit{Name: "host", Kind: throttle.TokenBucket, Rate: throttle.PerSecond(1), Overrides: map[string]throttle.Override{"a": rate, "b": rate}}
		define(t, s, limit)
		expect(t, "from the file", list(), []throttle.KeyState{{Key: "a", Override: rate, File: true, Share: 1}, {Key: "b", Override: rate, File: true, Share: 1}})

		more := throttle.Override{Capacity: 3}
		must(t, s.SetKey(ctx, "host", "a", more))
		must(t, s.SetKey(ctx, "host", "c", rate))
		define(t, s, limit)
		expect(t, "the same file changes nothing", list(), []throttle.KeyState{
			{Key: "a", Override: more, Share: 1}, {Key: "b", Override: rate, File: true, Share: 1}, {Key: "c", Override: rate, Share: 1},
		})
		must(t, s.UnsetKey(ctx, "host", "a"))
		limit.Overrides = nil
		define(t, s, limit)
		expect(t, "what was unset is gone, and what the file said", list(), []throttle.KeyState{{Key: "c", Override: rate, Share: 1}})

		must(t, s.Delete(ctx, "host"))
		define(t, s, limit)
		expect(t, "gone with the limit", list(), nil)
	})
}

func TestSetKey_Invalid(t *testing.T) {
	onEvery(t, func(t *testing.T, s *stage) {
		define(t, s, threes...)
		for _, tt := range []struct {
			limit, key string
			throttle.Override
			want string
		}{
			{"funnel", "k", throttle.Override{}, "rate missing: want the key's own rate, such as 1/10s, or its capacity"},
			{"funnel", "a\nb", throttle.Override{Capacity: 1}, `key "a\nb": want at most 200 bytes and no control characters`},
			{"fixed", "k", throttle.Override{Rate: throttle.PerHour(2)}, "rate 2/h: want N/m: the keys of a fixed_window share its windows"},
			{"log", "k", throttle.Override{Capacity: 2}, "capacity 2: a sliding_log limit has the capacity of its rate, 3; leave it out"},
			{"running", "k", throttle.Override{Rate: throttle.PerHour(2)}, "rate 2/h: a concurrency limit has no rate, only a capacity"},
		} {
			if err := s.SetKey(t.Context(), tt.limit, tt.key, tt.Override); err == nil || err.Error() != tt.want {
				t.Errorf("%s %s: %v, want %s", tt.limit, tt.Override, err, tt.want)
			}
		}
		for _, err := range []error{
			s.SetKey(t.Context(), "nothing", "k", throttle.Override{Capacity: 1}), s.UnsetKey(t.Context(), "nothing", "k"),
		} {
			if !errors.Is(err, throttle.ErrNoLimit) {
				t.Errorf("a limit that is not there: %v", err)
			}
		}
	})
}

func TestOverride_Text(t *testing.T) {
	for _, text := range []string{"1/10s", "capacity 3", "1/10s capacity 1"} {
		var o throttle.Override
		if err := o.UnmarshalText([]byte(text)); err != nil || o.String() != text {
			t.Errorf("%q: %q, %v", text, o, err)
		}
	}
	for _, text := range []string{"", "capacity", "capacity 0", "slow", "3", "1/10s capacity x"} {
		var o throttle.Override
		if err := o.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q: %q, want an error", text, o)
		}
	}
}

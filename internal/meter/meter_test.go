package meter

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// us returns a duration in microseconds.
func us(d time.Duration) int64 { return d.Microseconds() }

// anyLimit draws a small limit of one kind, so that meters fill up often.
func anyLimit(t *rapid.T, kind string) Limit {
	l := Limit{Kind: kind}
	if kind == Concurrency {
		l.Capacity = rapid.IntRange(1, 6).Draw(t, "capacity")
		return l
	}
	l.N, l.Per = rapid.IntRange(1, 7).Draw(t, "n"), time.Duration(rapid.IntRange(1, 500).Draw(t, "per"))*time.Microsecond
	l.Capacity = l.N
	if kind == Funnel || kind == TokenBucket {
		l.Capacity = rapid.IntRange(1, 6).Draw(t, "capacity")
	}
	if rapid.Bool().Draw(t, "has margin") {
		most := int64(l.Per)
		if kind == FixedWindow {
			most /= 2
		}
		l.Margin = time.Duration(rapid.Int64Range(0, most-1).Draw(t, "margin")).Truncate(time.Microsecond)
	}
	return l
}

const maxPermits = 10_000_000

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).UnixMicro()

// history makes random calls, some of them exactly at the time that ReadyAt returns, and returns
// the time of every permit by the clock.
func history(t *rapid.T, l Limit, backwards bool) []int64 {
	m := New(&l)
	now := epoch + rapid.Int64Range(0, 1000).Draw(t, "start")
	var taken []int64
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		k := rapid.Int64Range(1, int64(l.Capacity)).Draw(t, "cost")
		switch choice := rapid.IntRange(0, 9).Draw(t, "step"); {
		case choice < 5:
			now = m.ReadyAt(now, k)
		case choice == 9 && backwards:
			now -= rapid.Int64Range(0, 1200).Draw(t, "back")
		default:
			now += rapid.Int64Range(0, 150).Draw(t, "wait")
		}
		checkMeter(t, m, l, now, k)
		if m.ReadyAt(now, k) <= now {
			takeAs(m, fmt.Sprint(len(taken)), now, k)
			for range k {
				taken = append(taken, now)
			}
		}
	}
	return taken
}

// checkMeter checks that the results of a meter at one time agree: Left is what ReadyAt allows,
// ReadyAt is exact to the microsecond and grows with k, and FullAt is not in the past.
func checkMeter(t *rapid.T, m Meter, l Limit, now, k int64) {
	left, capacity := m.Left(now), int64(l.Capacity)
	if left < 0 || left > capacity {
		t.Fatalf("at %d: left %d of %d", now, left, capacity)
	}
	if left > 0 && m.ReadyAt(now, left) != now {
		t.Fatalf("at %d: %d left, but they are ready at %d", now, left, m.ReadyAt(now, left))
	}
	if left < capacity && m.ReadyAt(now, left+1) <= now {
		t.Fatalf("at %d: %d left, but one more is ready", now, left)
	}
	before := now
	for k := range capacity + 1 {
		at := m.ReadyAt(now, k)
		if at < before {
			t.Fatalf("at %d: permit %d is ready at %d, before the one before it at %d", now, k, at, before)
		}
		before = at
	}
	for k := capacity + 1; k < 4*capacity; k++ {
		if at := m.ReadyAt(now, k); at < m.ReadyAt(now, 1) {
			t.Fatalf("at %d: permit %d is expected at %d, before the first", now, k, at)
		}
	}
	if full := m.FullAt(now); full < now {
		t.Fatalf("at %d: full at %d, in the past", now, full)
	}
	at := m.ReadyAt(now, k)
	if again := m.ReadyAt(at, k); again != at {
		t.Fatalf("at %d: ready at %d, but then only at %d", now, at, again)
	}
	if at > now && m.ReadyAt(at-1, k) != at {
		t.Fatalf("at %d: ready at %d, but a microsecond before at %d", now, at, m.ReadyAt(at-1, k))
	}
}

// checkWindows fails if more than n permits lie in one window [t, t+w). The permits are in the
// order in which they were taken. It judges by the meter's own time: if the clock steps back, that
// time does not move until the clock has caught up.
func checkWindows(t *rapid.T, taken []int64, n int, w int64) {
	for i := 1; i < len(taken); i++ {
		taken[i] = max(taken[i], taken[i-1])
	}
	for i := n; i < len(taken); i++ {
		if taken[i]-taken[i-n] < w {
			t.Fatalf("%d permits within %d µs, at most %d in %d µs: %v", n+1, taken[i]-taken[i-n], n, w, taken)
		}
	}
}

// TestMeter_KnownAnswers takes permits at some times, and compares the meter's results before each.
func TestMeter_KnownAnswers(t *testing.T) {
	const µs = time.Microsecond
	type step struct {
		now, take, left, full int64
		ready                 []int64 // of each cost
	}
	for _, tt := range []struct {
		limit Limit
		costs []int64
		steps []step
	}{
		{Limit{Kind: Funnel, N: 3, Per: 10 * µs, Capacity: 2}, []int64{1, 2, 4}, []step{ // a permit each 3⅓ µs
			{100, 1, 2, 100, []int64{100, 100, 107}}, // TAT 103⅓
			{100, 1, 1, 104, []int64{100, 104, 110}}, // TAT 106⅔
			{100, 0, 0, 107, []int64{104, 107, 114}},
			{103, 0, 0, 107, []int64{104, 107, 114}}, // a third of a microsecond early
			{104, 1, 1, 107, []int64{104, 107, 114}}, // TAT 110: the thirds are not lost
			{200, 1, 2, 200, []int64{200, 200, 207}},
			{200, 0, 1, 204, []int64{200, 204, 210}},
		}},
		{Limit{Kind: FixedWindow, N: 3, Per: 100 * µs, Margin: 5 * µs}, []int64{1, 3, 4, 7}, []step{
			{1003, 0, 0, 1003, []int64{1005, 1005, 1105, 1205}}, // not open yet
			{1005, 2, 3, 1005, []int64{1005, 1005, 1105, 1205}},
			{1094, 0, 1, 1100, []int64{1094, 1105, 1105, 1205}},
			{1095, 0, 0, 1100, []int64{1105, 1105, 1205, 1305}}, // closed, with one permit left
			{1099, 0, 0, 1100, []int64{1105, 1105, 1205, 1305}},
			{1100, 0, 0, 1100, []int64{1105, 1105, 1205, 1305}},
			{1120, 1, 3, 1120, []int64{1120, 1120, 1205, 1305}},
			{1050, 0, 0, 1200, []int64{1105, 1205, 1205, 1305}}, // the clock was set back
			{1110, 0, 2, 1200, []int64{1110, 1205, 1205, 1305}},
		}},
		{Limit{Kind: SlidingLog, N: 3, Per: 100 * µs}, []int64{1, 3, 4, 7}, []step{
			{1000, 1, 3, 1000, []int64{1000, 1000, 1100, 1200}},
			{1010, 1, 2, 1100, []int64{1010, 1100, 1110, 1210}},
			{1050, 1, 1, 1110, []int64{1050, 1110, 1150, 1250}},
			{1099, 0, 0, 1150, []int64{1100, 1150, 1200, 1300}}, // a microsecond before the first permit returns
			{1100, 1, 1, 1150, []int64{1100, 1150, 1200, 1300}}, // the window is half-open
			{1160, 2, 2, 1200, []int64{1160, 1200, 1260, 1360}},
			{1000, 0, 0, 1260, []int64{1200, 1260, 1300, 1400}}, // the clock was set back
		}},
		{Limit{Kind: SlidingWindow, N: 3, Per: 600 * µs}, []int64{1, 3, 4}, []step{ // buckets of 10 µs
			{6003, 1, 3, 6003, []int64{6003, 6003, 6603}},
			{6009, 1, 2, 6609, []int64{6009, 6609, 6609}}, // the same bucket, which expires as a whole
			{6010, 1, 1, 6609, []int64{6010, 6609, 6610}},
			{6608, 0, 0, 6619, []int64{6609, 6619, 7209}},
			{6609, 1, 2, 6619, []int64{6609, 6619, 7209}},
			{6500, 0, 0, 7209, []int64{6600, 7209, 7200}}, // the clock was set back
		}},
		{Limit{Kind: Concurrency, Capacity: 3, Lease: 1000 * µs}, []int64{1, 2, 3, 9}, []step{
			{0, 1, 3, 0, []int64{0, 0, 0, 1000}},
			{10, 2, 2, 1000, []int64{10, 10, 1000, 1000}},
			{20, 0, 0, 1010, []int64{1000, 1010, 1010, 1010}},
			{999, 0, 0, 1010, []int64{1000, 1010, 1010, 1010}},
			{1000, 0, 1, 1010, []int64{1000, 1010, 1010, 1010}},
			{1010, 0, 3, 1010, []int64{1010, 1010, 1010, 2010}},
		}},
	} {
		t.Run(tt.limit.Kind, func(t *testing.T) {
			m := New(&tt.limit)
			for i, want := range tt.steps {
				got := step{want.now, want.take, m.Left(want.now), m.FullAt(want.now), nil}
				for _, cost := range tt.costs {
					got.ready = append(got.ready, m.ReadyAt(want.now, cost))
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("step %d: %v, want %v", i, got, want)
				}
				takeAs(m, fmt.Sprint(i), want.now, want.take)
			}
		})
	}
}

// takeAs takes k permits. Holder is the holder of a lease.
func takeAs(m Meter, holder string, now, k int64) {
	if leases, ok := m.(*Leases); ok {
		leases.Holder = holder
	}
	if k > 0 {
		m.Take(now, k)
	}
	if leases, ok := m.(*Leases); ok {
		leases.Holder = ""
	}
}

// TestMeter_Redefined takes permits one by one, a microsecond apart, and then changes the limit.
func TestMeter_Redefined(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit Limit
		take  int
		wait  time.Duration // from the last permit to the change
		now   Limit
		left  int64
		ready time.Duration // until a permit is ready
	}{
		{"more in an hour", Limit{Kind: FixedWindow, N: 10, Per: time.Hour}, 8, 0, Limit{N: 10, Per: time.Hour}, 2, 0},
		{"fewer", Limit{Kind: FixedWindow, N: 10, Per: time.Hour}, 8, 0, Limit{N: 5, Per: time.Hour}, 0, time.Hour - 7*time.Microsecond},
		{"the day holds the hour", Limit{Kind: FixedWindow, N: 10, Per: time.Hour}, 8, 0, Limit{N: 20, Per: day}, 12, 0},
		{"all may be of this minute", Limit{Kind: FixedWindow, N: 10, Per: time.Hour}, 8, 0, Limit{N: 10, Per: time.Minute}, 2, 0},
		{"two of four and one more must return", Limit{Kind: SlidingLog, N: 4, Per: time.Second}, 4, 0, Limit{N: 2, Per: time.Second}, 0, time.Second - time.Microsecond},
		{"a larger log", Limit{Kind: SlidingLog, N: 4, Per: time.Second}, 4, 0, Limit{N: 6, Per: time.Second}, 2, 0},
		{"all three leases must end", Limit{Kind: Concurrency, Capacity: 3, Lease: time.Second}, 3, 0, Limit{Capacity: 1, Lease: time.Second}, 0, time.Second},
		{"8 of 10 are owed", Limit{Kind: Funnel, N: 1, Per: time.Second, Capacity: 10}, 10, 2500 * time.Millisecond, Limit{N: 2, Per: time.Second, Capacity: 10}, 2, 0},
		{"8 of 20", Limit{Kind: Funnel, N: 1, Per: time.Second, Capacity: 10}, 10, 2500 * time.Millisecond, Limit{N: 1, Per: time.Minute, Capacity: 20}, 12, 0},
		{"8 of 5", Limit{Kind: Funnel, N: 1, Per: time.Second, Capacity: 10}, 10, 2500 * time.Millisecond, Limit{N: 1, Per: time.Minute, Capacity: 5}, 0, 4 * time.Minute},
	} {
		t.Run(tt.limit.Kind+"/"+tt.name, func(t *testing.T) {
			m, now := New(&tt.limit), epoch
			for i := range tt.take {
				now = epoch + int64(i)
				takeAs(m, fmt.Sprint(i), now, 1)
			}
			now += us(tt.wait)
			tt.now.Kind, tt.now.Since = tt.limit.Kind, now
			m.Define(&tt.now)
			if left, ready := m.Left(now), m.ReadyAt(now, 1)-now; left != tt.left || ready != us(tt.ready) {
				t.Errorf("%d left, ready in %d µs; want %d, %s", left, ready, tt.left, tt.ready)
			}
		})
	}
}

// TestMeter_Guarantee: random calls never get more than the kind guarantees, even if the clock
// steps back.
func TestMeter_Guarantee(t *testing.T) {
	for _, kind := range []string{Funnel, TokenBucket, FixedWindow, SlidingLog, SlidingWindow, Concurrency} {
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			l := anyLimit(t, kind)
			l.Lease = 200 * time.Microsecond
			taken := history(t, l, kind != Concurrency)
			switch kind {
			case Funnel, TokenBucket: // capacity + rate·w in any window of length w
				slices.Sort(taken)
				for i := range taken {
					for j := i; j < len(taken); j++ {
						count, w := int64(j-i+1), taken[j]-taken[i]
						if (count-int64(l.Capacity))*l.PeriodUS() > w*int64(l.N) {
							t.Fatalf("%d permits within %d µs under %+v", count, w, l)
						}
					}
				}
			case FixedWindow:
				counts := map[int64]int{}
				for _, at := range taken {
					into := at % l.PeriodUS()
					if into < us(l.Margin) || into >= l.PeriodUS()-us(l.Margin) {
						t.Fatalf("a permit %d µs into a window that opens after and closes before %s", into, l.Margin)
					}
					if counts[at-into]++; counts[at-into] > l.N {
						t.Fatalf("more than %d in the window at %d", l.N, at-into)
					}
				}
			case Concurrency:
				checkWindows(t, taken, l.Capacity, us(l.Lease))
			default:
				checkWindows(t, taken, l.N, l.PeriodUS())
			}
		}))
	}
}

// TestMeter_FullAt: at that time the meter is as if never used.
func TestMeter_FullAt(t *testing.T) {
	for _, kind := range []string{Funnel, TokenBucket, FixedWindow, SlidingLog, SlidingWindow, Concurrency} {
		t.Run(kind, rapid.MakeCheck(func(t *rapid.T) {
			l := anyLimit(t, kind)
			m := New(&l)
			now := epoch
			for range rapid.IntRange(0, 8).Draw(t, "calls") {
				now += rapid.Int64Range(0, 100).Draw(t, "wait")
				if m.ReadyAt(now, 1) <= now {
					m.Take(now, 1)
				}
			}
			full := m.FullAt(now)
			unused := New(&l)
			for k := range int64(2*l.Capacity + 1) {
				if got, want := m.ReadyAt(full, k), unused.ReadyAt(full, k); got != want {
					t.Fatalf("at %d, when it is full: permit %d ready at %d, of a new meter at %d", full, k, got, want)
				}
			}
			if again := m.FullAt(full); again != full {
				t.Fatalf("full at %d, but then only at %d", full, again)
			}
		}))
	}
}

func TestSpan(t *testing.T) {
	for _, tt := range []struct{ k, n, period, us, rest int64 }{
		{0, 3, 10, 0, 0},
		{1, 3, 10, 3, 1},
		{2, 3, 10, 6, 2},
		{3, 3, 10, 10, 0},
		{maxPermits, maxPermits, us(100 * 365 * day), us(100 * 365 * day), 0},
		{maxPermits, 1, us(time.Minute), maxPermits * us(time.Minute), 0},
		{maxPermits, 1, us(time.Hour), MaxTime, 0},       // in a thousand years
		{maxPermits, 1, us(100 * 365 * day), MaxTime, 0}, // would overflow
	} {
		gotUS, gotRest := Span(tt.k, tt.n, tt.period)
		if gotUS != tt.us || gotRest != tt.rest {
			t.Errorf("Span(%d, %d, %d) = %d, %d, want %d, %d", tt.k, tt.n, tt.period, gotUS, gotRest, tt.us, tt.rest)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, maxPermits).Draw(t, "n")
		period := rapid.Int64Range(1, us(15*time.Minute)).Draw(t, "period") // k of them end before MaxTime
		k := rapid.Int64Range(0, maxPermits).Draw(t, "k")
		at, rest := Span(k, n, period)
		if got := owed(at, rest, n, period); got != k {
			t.Fatalf("owed(Span(%d)) = %d", k, got)
		}
		if got := owed(at, rest+1, n, period); rest+1 < n && got != k+1 {
			t.Fatalf("owed just after Span(%d) = %d, want it rounded up", k, got)
		}
	})
}

func newFunnel(n int, per time.Duration, capacity int) *gcra {
	return New(&Limit{Kind: Funnel, N: n, Per: per, Capacity: capacity}).(*gcra)
}

// TestGCRA_Drift takes each permit as early as possible and compares with exact fractions. Capacity
// 2 keeps TAT ahead of the clock. With capacity 1 each permit would start at a whole microsecond.
func TestGCRA_Drift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, maxPermits).Draw(t, "n")
		period := rapid.Int64Range(int64(n), us(month)).Draw(t, "period")
		g := newFunnel(n, time.Duration(period)*time.Microsecond, 2)
		g.Take(epoch, 1)
		now := epoch
		for i := range int64(200) {
			now = g.ReadyAt(now, 1)
			exact := new(big.Int).Mul(big.NewInt(i), big.NewInt(period))
			exact.Add(exact, big.NewInt(int64(n-1))).Div(exact, big.NewInt(int64(n)))
			if got, want := now-epoch, exact.Int64(); got != want {
				t.Fatalf("permit %d after %d µs, want %d", i, got, want)
			}
			g.Take(now, 1)
		}
	})
}

// TestGCRA_Overflow: neither decades without a call nor the most extreme valid rates overflow.
func TestGCRA_Overflow(t *testing.T) {
	g := newFunnel(maxPermits, time.Microsecond, maxPermits)
	g.Take(epoch, maxPermits)
	century := us(100 * 365 * day)
	if got := g.Left(epoch + century); got != maxPermits {
		t.Errorf("after a century %d left, want %d", got, maxPermits)
	}
	// 10 million centuries ahead end at MaxTime: too strict, but never too much.
	slow := newFunnel(1, 100*365*day, maxPermits)
	for range 10 {
		ready, left := slow.ReadyAt(epoch, maxPermits), slow.Left(epoch)
		if ready < epoch || left < 0 || left > maxPermits {
			t.Fatalf("ready at %d, %d left", ready, left)
		}
		if slow.ReadyAt(epoch, maxPermits/10) <= epoch {
			slow.Take(epoch, maxPermits/10)
		}
	}
	if got := slow.ReadyAt(epoch, maxPermits); got <= epoch+century {
		t.Errorf("all permits ready at %d, want it more than a century ahead", got)
	}
	if got := g.ReadyAt(epoch-century, 1); got <= epoch-century {
		t.Errorf("with the clock set back a century: ready at %d, want later", got)
	}
}

// TestGCRA_GiveBack: calls give permits back in any order, and others take permits meanwhile. The
// meter never has more free permits than if the calls had never taken those that they gave back.
func TestGCRA_GiveBack(t *testing.T) {
	type taking struct {
		at, k int64
		mark  Mark
	}
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Kind: Funnel, N: rapid.IntRange(1, 7).Draw(t, "n"), Per: time.Duration(rapid.IntRange(1, 100).Draw(t, "per")) * time.Microsecond, Capacity: 40}
		g, now := New(&l), epoch
		var takings []taking
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 0, 0, 1, 2, 10, 100, 500}).Draw(t, "wait")
			k := rapid.Int64Range(1, 8).Draw(t, "k")
			if len(takings) > 0 && rapid.Bool().Draw(t, "give back") {
				x := &takings[rapid.IntRange(0, len(takings)-1).Draw(t, "call")]
				k = min(k, x.k)
				g.GiveBack(now, x.at, k, x.k, x.mark)
				x.k -= k
			} else if g.ReadyAt(now, k) <= now {
				takings = append(takings, taking{now, k, g.Take(now, k)})
			}
			exact := New(&l)
			for _, x := range takings {
				exact.Take(x.at, x.k)
			}
			for k := range int64(l.Capacity) {
				if got, least := g.ReadyAt(now, k), exact.ReadyAt(now, k); got < least {
					t.Fatalf("%d permits are ready at %d, want not before %d", k, got, least)
				}
			}
		}
	})
}

// TestGCRA_GiveBackAtOnce: many calls give up at about the same time. Whatever the order in which
// their permits come back, as many are free as before.
func TestGCRA_GiveBackAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Limit{Kind: Funnel, N: 1, Per: time.Duration(rapid.IntRange(200, 1000).Draw(t, "per")) * time.Microsecond, Capacity: 100}
		g, now := New(&l), epoch
		g.Take(now, rapid.Int64Range(0, 50).Draw(t, "others"))
		left := g.Left(now)
		var calls []int
		var at [50]int64
		var marks [50]Mark
		for i := range at {
			now += rapid.Int64Range(0, 2).Draw(t, "wait")
			calls, at[i], marks[i] = append(calls, i), now, g.Take(now, 1)
		}
		for _, i := range rapid.Permutation(calls).Draw(t, "order") {
			now += rapid.Int64Range(0, 2).Draw(t, "wait")
			g.GiveBack(now, at[i], 1, 1, marks[i])
		}
		if got := g.Left(now); got < left {
			t.Errorf("%d permits are free, want %d", got, left)
		}
	})
}

// TestGCRA_MaxTime: a debt that ends at MaxTime stays there if the rate changes, as in Redis.
func TestGCRA_MaxTime(t *testing.T) {
	g := newFunnel(1, time.Microsecond, 1)
	g.Take(epoch, 1)
	before := epoch - us(time.Minute)
	g.Define(&Limit{Kind: Funnel, N: 1, Per: week, Capacity: 1, Since: before})
	if g.tat != MaxTime || g.rest != 0 {
		t.Errorf("a minute's permits at one a week are owed until %d and %d, want %d", g.tat, g.rest, int64(MaxTime))
	}
}

func newLog(n int, per time.Duration) *slidingLog {
	return New(&Limit{Kind: SlidingLog, N: n, Per: per}).(*slidingLog)
}

// TestSlidingLog_Exact: a permit is denied only if the window that ends now would hold too many.
func TestSlidingLog_Exact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLimit(t, SlidingLog)
		m := New(&l)
		now := epoch
		var taken []int64
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now += rapid.Int64Range(0, 100).Draw(t, "wait")
			live := 0
			for _, at := range taken {
				if at > now-l.PeriodUS() {
					live++
				}
			}
			if got, want := m.Left(now), int64(l.N-live); got != want {
				t.Fatalf("at %d: %d left, want %d", now, got, want)
			}
			if m.ReadyAt(now, 1) <= now {
				m.Take(now, 1)
				taken = append(taken, now)
			}
		}
	})
}

func newWindow(n int, per time.Duration) *slidingWindow {
	return New(&Limit{Kind: SlidingWindow, N: n, Per: per}).(*slidingWindow)
}

// TestSlidingWindow_Late: a permit returns less than one bucket late, and the state stays small.
func TestSlidingWindow_Late(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 50).Draw(t, "n")
		per := time.Duration(rapid.IntRange(1, 5000).Draw(t, "per")) * time.Microsecond
		strict, bounded := newLog(n, per), newWindow(n, per)
		now := epoch
		for range rapid.IntRange(1, 300).Draw(t, "calls") {
			now += rapid.Int64Range(0, 200).Draw(t, "wait")
			late := bounded.ReadyAt(now, 1) - strict.ReadyAt(now, 1)
			if late < 0 || late >= bounded.width {
				t.Fatalf("at %d: ready %d µs after the exact time, want 0 to less than %d", now, late, bounded.width)
			}
			if bounded.ReadyAt(now, 1) <= now {
				strict.Take(now, 1)
				bounded.Take(now, 1)
			}
			if len(bounded.buckets) > bucketsPerPeriod+1 {
				t.Fatalf("%d buckets", len(bounded.buckets))
			}
		}
	})
}

package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/script"
	"github.com/headgate/headgate/internal/testutil/redistest"
	"github.com/headgate/headgate/throttle"
)

// numberedScripts are the scripts that have the number of a call, by their SHA-1.
var numberedScripts = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for _, name := range []string{"lanes/acquire", "lanes/grant", "lanes/rate_limited", "limits/fast_path", "limits/charge", "limits/delete"} {
		names[script.New(name).Hash()] = name
	}
	return names
})

// lateness is the network on which packets are late.
type lateness struct {
	rdb      redis.UniversalClient // delivers them
	operator delayer
	arrivals sync.WaitGroup
}

func (l *lateness) connect(w *sim) {
	l.operator.w = w
	l.rdb = redistest.MiniClient(w.t, w.limiter)
	l.rdb.AddHook(before(w.clock.set))
	takeOut(w.t, l.rdb)
}

// delayer delays the first sendings of a client's next calls of each script. The client repeats them at
// once, and gets the replies to the repeats.
type delayer struct {
	w    *sim
	mu   sync.Mutex
	left map[string]int // by the script's name
}

// delay delays the next n calls of each script.
func (d *delayer) delay(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = map[string]int{}
	for _, name := range numberedScripts() {
		d.left[name] = n
	}
}

// next returns how many calls of a script are to be late, this one included.
func (d *delayer) next(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := d.left[name]
	if left > 0 {
		d.left[name]--
	}
	return left
}

func (d *delayer) around(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	name := numberedScript(cmd)
	left := d.next(name)
	if left == 0 {
		return next(ctx, cmd)
	}
	sending := &redistest.LateSending{Next: func(redis.Cmder) bool { return true }}
	err := sending.Around(ctx, cmd, next)
	r := rand.New(rand.NewPCG(d.w.seed, uint64(300+left+10*len(name))))
	delay := milliseconds(between(r, 100, 8000))
	d.w.late.arrivals.Go(func() {
		time.Sleep(delay)
		d.w.arrive(name, sending)
	})
	return err
}

// numberedScript returns the name of the script that a command calls with the number of a call, or ”.
func numberedScript(cmd redis.Cmder) string {
	args := cmd.Args()
	if cmd.Name() != "evalsha" {
		return ""
	}
	name := numberedScripts()[fmt.Sprint(args[1])]
	if keys, _ := args[2].(int); name == "limits/fast_path" && args[3+keys] == "" { // a call of Allow, which has no number
		return ""
	}
	return name
}

// arrive delivers a late sending at a quarter of a millisecond, when nothing else happens. It changes
// nothing that Redis holds: it takes no permit, frees no slot, and moves no job. If Redis has lost
// data since, it does not know the call, so the sending does not arrive.
func (w *sim) arrive(name string, sending *redistest.LateSending) {
	time.Sleep(time.Until(time.Now().Truncate(time.Millisecond).Add(1250 * time.Microsecond)))
	w.mu.Lock()
	knows := w.oneClock()
	w.mu.Unlock()
	if !knows {
		return
	}
	w.mu.Lock()
	w.history.Note(w.now(), "", "a late sending of %s arrives", name)
	w.mu.Unlock()
	at, was := time.Now(), w.limiter.Dump()
	sending.Arrive(w.t.Context(), w.late.rdb)
	is := w.limiter.Dump()
	if is == was || !time.Now().Equal(at) { // if the limiter hung, others have changed it, too
		return
	}
	old := map[string]bool{}
	for line := range strings.Lines(was) {
		old[line] = true
	}
	for line := range strings.Lines(is) {
		if !old[line] {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.breaks(w.lanes, 0, w.now(), "a late sending of %s changed what Redis holds: %s", name, strings.TrimSpace(line))
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaks(w.lanes, 0, w.now(), "a late sending of %s removed something from Redis", name)
}

// delayPackets delays the first sendings of a process's next scripts.
func (w *sim) delayPackets() {
	p := w.process()
	if p == nil {
		return
	}
	n := between(w.rand, 2, 5)
	w.note(simEvent{kind: "packets late", text: fmt.Sprintf("the next %d calls of each script of process %d arrive late", n, p.index), explains: lanesAt()})
	p.late.delay(n)
}

// deleteLate deletes a limit, and defines it again before the first sending of the deletion arrives.
func (w *sim) deleteLate() {
	spare := throttle.Limit{Name: "spare", Kind: throttle.Funnel, Rate: throttle.PerSecond(1), Capacity: 1}
	w.note(simEvent{kind: "packets late", text: "a deletion of limit spare arrives late", explains: lanesAt()})
	ctx, limiter := w.t.Context(), w.operator.limiter
	w.operator.must(limiter.Set(ctx, spare))
	w.late.operator.delay(1)
	w.operator.must(limiter.Delete(ctx, spare.Name))
	w.operator.must(limiter.Set(ctx, spare))
	w.late.arrivals.Go(func() {
		time.Sleep(10 * time.Second)
		_ = limiter.Delete(ctx, spare.Name) // gone if the data were lost
	})
}

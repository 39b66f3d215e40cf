package waitdb_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/testutil/limittest"
	"github.com/headgate/headgate/throttle"
)

// anyJobLimit lets two at once, so that all jobs can run. A fixed window with a
// margin is closed at times, which no grant can outlast.
func anyJobLimit(t *rapid.T, name string, kind throttle.Kind) throttle.Limit {
	l := limittest.Any(t, name, kind)
	if l.Capacity > 0 {
		l.Capacity++
	} else {
		l.Rate.N++
	}
	if kind == throttle.FixedWindow {
		l.Margin = 0
	}
	return l
}

func (y *simulation) define(t *rapid.T, l throttle.Limit) {
	y.limits[l.Name] = l
	if err := y.Set(background, l); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) anyLimit(t *rapid.T) throttle.Limit {
	return y.limits[fmt.Sprintf("l%d", rapid.IntRange(0, len(y.limits)-1).Draw(t, "limit"))]
}

func (y *simulation) redefine(t *rapid.T) {
	was := y.anyLimit(t)
	y.judge(t)
	y.changes++
	l := anyJobLimit(t, was.Name, was.Kind)
	for _, key := range []string{"a", "b"} {
		y.restartHistory(l.Name + "|" + key)
	}
	y.define(t, l)
}

// restartHistory begins a meter's history again.
func (y *simulation) restartHistory(meter string) {
	delete(y.histories, meter)
	for _, j := range y.jobs {
		delete(j.held, meter)
	}
}

func (y *simulation) pause(t *rapid.T) {
	name := y.anyLimit(t).Name
	change := y.Resume
	if rapid.Bool().Draw(t, "pause") {
		change = y.Pause
	}
	y.changes++
	if err := change(background, name); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) block(t *rapid.T) {
	y.changes++
	until := y.now.Add(time.Duration(rapid.IntRange(-1, 3).Draw(t, "seconds")) * time.Second)
	if err := y.Block(background, y.anyLimit(t).Name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), until); err != nil {
		t.Fatalf("%v", err)
	}
}

func (y *simulation) reset(t *rapid.T) {
	y.judge(t)
	name, key := y.anyLimit(t).Name, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
	y.restartHistory(name + "|" + key)
	if err := y.Reset(background, name, key); err != nil {
		t.Fatalf("%v", err)
	}
}

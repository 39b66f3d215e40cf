package scheduler

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"
)

// Run enqueues ticks until ctx ends, then finishes the tick at hand and
// returns nil. When Redis fails it says so in the log once and goes on trying.
func (c *Cron) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		timer := time.NewTimer(c.pass(ctx))
		select {
		case <-ctx.Done():
		case <-c.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

const (
	// syncEvery bounds a sleep, so that our clock's drift from Redis's does not
	// add up.
	syncEvery = 5 * time.Minute
	// cronWorkers is how many entries are looked after at once.
	cronWorkers = 8
)

// pass looks after every entry that is due for it, and says how long there is
// nothing to do.
func (c *Cron) pass(ctx context.Context) time.Duration {
	items := c.dueItems()
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = item.entry.Name
	}
	seen := time.Now()
	now, states, err := c.read(ctx, names...)
	if err != nil {
		c.report(ctx, err)
		return cronRetry(1)
	}
	c.mu.Lock()
	c.now, c.asked = now, time.Now()
	c.mu.Unlock()
	c.tendAll(ctx, items, func(i int) cronView {
		return cronView{cronState: states[i], now: now, seen: seen}
	})
	return c.untilNext()
}

// tendAll looks after the items, some at a time.
func (c *Cron) tendAll(ctx context.Context, items []*cronItem, view func(int) cronView) {
	var group sync.WaitGroup
	free := make(chan struct{}, cronWorkers)
	errs := make([]error, len(items))
	for i, item := range items {
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			errs[i] = c.tendItem(ctx, item, view(i))
		})
	}
	group.Wait()
	c.report(ctx, errs...)
}

// tendItem looks after a copy of the item, as Set may read the item meanwhile.
func (c *Cron) tendItem(ctx context.Context, item *cronItem, v cronView) error {
	after := *item
	err := c.tend(ctx, &after, &v)
	if err != nil {
		after.fails++
		after.look = v.now.Add(cronRetry(after.fails))
	} else {
		after.fails = 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	item.cronProgress = after.cronProgress
	if item.leaving && err == nil && c.leaving[item.entry.Name] == item {
		delete(c.leaving, item.entry.Name)
	}
	return err
}

// dueItems lists the items to look at by now. Their order is random, so that
// replicas that wake up for many ticks at once each win some of them.
func (c *Cron) dueItems() []*cronItem {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Add(time.Since(c.asked))
	var due []*cronItem
	for item := range c.active() {
		if !item.look.After(now) {
			due = append(due, item)
		}
	}
	return due
}

func (c *Cron) untilNext() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Add(time.Since(c.asked))
	wait := syncEvery
	for item := range c.active() {
		wait = min(wait, item.look.Sub(now))
	}
	return max(wait, 0)
}

// active gives the enabled items and those that leave. The caller holds mu.
func (c *Cron) active() iter.Seq[*cronItem] {
	return func(yield func(*cronItem) bool) {
		for _, item := range c.items {
			if !item.entry.Disabled && !yield(item) {
				return
			}
		}
		for _, item := range c.leaving {
			if !yield(item) {
				return
			}
		}
	}
}

// report logs the first of several errors when things start to fail, and one
// line when they are well again. Errors because ctx has ended are none.
func (c *Cron) report(ctx context.Context, errs ...error) {
	if ctx.Err() != nil {
		return
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	c.mu.Lock()
	defer c.mu.Unlock()
	held := false
	for item := range c.active() {
		held = held || item.fails > 0
	}
	switch {
	case len(errs) > 0 && !c.failing:
		c.failing = true
		c.log.Warn("schedules are held up, trying again", "errors", len(errs), "first", errs[0])
	case len(errs) == 0 && !held && c.failing:
		c.failing = false
		c.log.Info("schedules go on")
	}
}

// cronRetry is how long to wait after so many failures in a row: 1s, 2s, 4s
// and so on up to 30s.
func cronRetry(fails int) time.Duration {
	return min(time.Second<<min(fails-1, 5), 30*time.Second)
}

package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/redishealth"
)

// readTimeout ends a read that no scrape waits for any more.
const readTimeout = 2 * redishealth.AnswerTimeout

var errSlow = errors.New("the metrics of the scope could not be read in time")

// scopeRead is one read of the metrics of a scope.
type scopeRead struct {
	done    chan struct{} // closed at the end of the read
	ended   time.Time
	metrics []prometheus.Metric // up to the first error
	err     error
}

// age returns the seconds since the end of the read. A read of the current scrape has the age 0.
func (r *scopeRead) age() float64 { return time.Since(r.ended).Round(healthTimeout).Seconds() }

// readScope returns a read of the scope. If Redis is slow, it is the last one: see healthTimeout.
func (c *collector) readScope() *scopeRead {
	c.mu.Lock()
	if c.reading == nil {
		c.reading = &scopeRead{done: make(chan struct{})}
		go c.read(c.reading)
	}
	reading, last := c.reading, c.last
	c.mu.Unlock()
	if redishealth.Await(reading.done, healthTimeout) {
		return reading
	}
	if last != nil && time.Since(last.ended) < redishealth.AnswerTimeout {
		return last
	}
	if redishealth.Await(reading.done, redishealth.AnswerTimeout-healthTimeout) {
		return reading
	}
	return &scopeRead{err: errSlow}
}

// read makes the current read.
func (c *collector) read(r *scopeRead) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	out, sent := make(chan prometheus.Metric), make(chan struct{})
	go func() {
		defer close(sent)
		for m := range out {
			r.metrics = append(r.metrics, m)
		}
	}()
	r.err = c.collectScope(ctx, out)
	close(out)
	<-sent
	c.readEviction(ctx)
	r.ended = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading = nil; r.err == nil {
		c.last = r
	}
	close(r.done)
}

// collectScope sends the metrics of the scope until the first error.
func (c *collector) collectScope(ctx context.Context, out chan<- prometheus.Metric) error {
	parts := []func(context.Context, chan<- prometheus.Metric) error{
		c.collectLimits, c.collectDispatcher, c.collectWorkers, c.collectQueues, c.collectSchedules,
	}
	if c.isShard {
		parts = parts[:2]
	}
	for _, part := range parts {
		if err := part(ctx, out); err != nil {
			return err
		}
	}
	return nil
}

// readEviction reads whether a Redis evicts keys. If one of them does not answer, it keeps the last
// answer.
func (c *collector) readEviction(ctx context.Context) {
	if c.isShard {
		return
	}
	policy, err := redishealth.EvictionPolicy(ctx, c.rdb)
	if policy == "" && err == nil {
		policy, err = redishealth.EvictionPolicy(ctx, c.queuesRDB)
	}
	if err == nil {
		c.evicts.Store(policy != "")
	}
}

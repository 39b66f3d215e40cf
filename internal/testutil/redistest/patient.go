package redistest

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is longer than any test. go-redis does not pass "no limit" to the nodes of a cluster.
const patience = 24 * time.Hour

// detectorTime is after how many milliseconds without an answer Redis takes a server for dead. A busy
// machine freezes processes for seconds.
const detectorTime = 60_000

// Patient makes the options' client wait for a slow Redis as long as the caller's context does, so
// that a busy machine fails no test. A Redis that is down still fails calls at once.
func Patient(o *redis.Options) *redis.Options {
	o.DialTimeout, o.ReadTimeout = patience, patience
	o.WriteTimeout = patience
	o.ContextTimeoutEnabled = true
	return o
}

// Package throttle decides whether a job may run.
//
// A limit is a named bound, such as 2000 a day. One limit and one key (a host,
// an account) make a meter, which hands out permits. A Limiter answers at once:
// allowed, with the permits taken, or denied, with how long until the same call
// could be allowed. Most callers want Allow; several limits at once are
// AllowAll, all or none.
//
// Redis is the limiter that all processes share, and Local the same within one.
// Package scheduler/lanes has queued jobs wait for permits, and package scheduler
// asynq's jobs.
package throttle

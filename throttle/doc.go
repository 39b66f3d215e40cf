// Package throttle decides whether a job may run.
//
// A limit is a named bound, such as 2000 a day. One limit and one key (a host,
// an account) make a meter, which hands out permits. A Limiter answers at once:
// allowed, with the permits taken, or denied, with how long until the same call
// could be allowed. Most callers want Allow; several limits at once are
// AllowAll, all or none.
//
// Redis is the limiter that all processes share, and Local the same within one.
// Lanes is a Redis limiter for whose permits queued jobs can wait: a denied job
// joins a lane, lanes that share a meter take turns there, and a job whose turn has
// come is called. Package scheduler has asynq's jobs do that.
package throttle

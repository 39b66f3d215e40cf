// Package lanes has queued jobs wait for the permits of a limiter in Redis, and says who
// waits, and for how long.
//
// A job that asks with Acquire and is denied joins a lane, the FIFO of one queue's jobs that
// need the same meters. Lanes that share a meter take turns there, and a job whose turn has
// come is called: it asks again, and its permits are there. Package scheduler has asynq's
// jobs do that.
package lanes

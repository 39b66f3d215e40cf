// Package waitdb keeps the jobs that wait for permits in Redis: a limiter in Redis for whose permits
// queued jobs can wait, what the dispatcher reads and writes of them, and who waits where. No other
// package knows how Redis keeps them.
//
// A job that asks with Acquire and is denied joins a lane, the FIFO of one queue's jobs that
// need the same meters. Lanes that share a meter take turns there, and a job whose turn has
// come is called: it asks again, and its permits are there. Package scheduler has asynq's
// jobs do that.
package waitdb

// Package history keeps what happens in a scope for those who look on. Each
// process that runs jobs has a Recorder. It counts, and once a second writes to
// Redis what was new: a summary in a stream that reaches a quarter of an hour
// back, and totals since ever. Nothing in it decides anything.
package history

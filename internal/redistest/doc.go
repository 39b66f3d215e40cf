// Package redistest gives tests and benchmarks the Redis they need: miniredis
// in process, or real redis-server processes alone, behind TLS, under a
// sentinel or as a cluster.
//
// Every call of [Real], [Run] and their like starts servers of its own, ready
// within some 20 ms, so no test sees the keys, scripts or settings of another.
// Nothing is written outside of a temporary folder, which goes with the server.
// The Start functions do the same without a test, for benchmarks.
package redistest

// Package embedded runs the Redis of users who configured none: miniredis
// inside of the worker, on a loopback port that it writes to a file, so that
// the commands of the same user find it. When the worker stops, what it holds
// is kept in a file, and another worker that is running, or the next one, goes
// on with it. A crash loses it.
//
// Jobs that are enqueued while no worker runs wait in a file, the spool, and
// the next worker takes them. One lock file guards both, so a job either meets
// a running worker or is in the spool before the next one looks there.
package embedded

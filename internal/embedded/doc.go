// Package embedded runs the Redis of users who configured none: miniredis
// inside of the worker, on a loopback port that it writes to a file, so that
// the commands of the same user find it. What it holds is gone when the worker
// ends.
//
// Jobs that are enqueued while no worker runs wait in a file, the spool, and
// the next worker takes them. One lock file guards both, so a job either meets
// a running worker or is in the spool before the next one looks there.
package embedded

// Package embedded runs the Redis of users who configured none: miniredis
// inside of the worker, at a Unix socket that only the same user can connect to,
// so that this user's commands find it. What it holds is saved to a file each
// second and when the worker stops, and another worker that is running, or the
// next one, goes on with it. A crash loses what was not saved yet.
//
// Jobs that are enqueued while no worker runs wait in a file, the spool, and
// the next worker takes them. One lock file guards both, so a job either meets
// a running worker or is in the spool before the next one looks there.
package embedded

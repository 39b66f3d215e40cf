// Package page is a live page that answers what waits, on which limit, since when
// and until when, and lets an operator change it.
//
//	p, err := page.New(page.Options{Redis: rdb, Limiter: limiter, Token: token})
//	…
//	http.Handle("/headgate/", http.StripPrefix("/headgate", p))
//
// It needs nothing but Redis: no build step, no other host, no database. One
// reader in the process feeds all who look, and reads nothing while nobody does.
// Without a token, a user or a check of the program's own it answers only to
// browsers on the same machine.
//
// Once a second the reader makes a snapshot of what Redis says. A view turns that,
// and what it reads itself for its own query, into HTML, once for all who look at
// the same; a stream of events sends each of them what has changed. The pages are
// made on the server and work without the script, which only keeps them up to date.
// All that comes from jobs is somebody else's text: it is cut, made visible and
// freed of secrets before it is shown.
//
// # What a look costs
//
// A turn is five round trips: Redis's time, the numbers of what waits, the newest
// line of the changelog, the history since the last turn, and a hundred meters at
// once, of which there are four hundred at most. Who wants which keys is read every
// two seconds, or more seldom where that takes long; asynq's queues every five; the
// limits when anything of them has changed, or after half a minute. What a view needs
// for its own query alone is kept a moment for whoever asks the same, and four such
// reads run at a time. At most 500 may look on.
//
// # Who may look
//
// A browser signs in with a token, or a user and a password, and has a signed cookie
// for twelve hours. A program sends the same in an Authorization header with each
// request. A wrong guess waits for a second, and eight wait at most.
//
// # What others may try
//
// Whoever can enqueue a job chooses its type, its payload and its keys, and so what
// stands here. It is escaped for the place it stands in; what got through
// all the same could not run, as the page allows no script but its own files. A
// link changes nothing: each change is asked for on a page of its own and made by a
// POST, which is refused from other sites.
package page

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
package page

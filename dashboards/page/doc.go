// Package page serves a live page that shows which jobs wait for which limit, and how long, and lets an
// operator change limits and jobs.
//
//	p, err := page.New(page.Options{Redis: rdb, Limiter: limiter, Token: token})
//	…
//	http.Handle("/headgate/", http.StripPrefix("/headgate", p))
//
// It needs nothing but Redis. The server renders all pages, and they work without JavaScript; the
// script asks for the page again every two seconds and updates what differs. Without a
// viewer the page reads nothing. Each process reads for its own viewers, at most once a second: some five
// round trips, and what a view needs for its own query.
//
// # Data
//
//   - limits, meters, waiting jobs and lanes: from the limiter, at most some seconds old;
//   - charts and rates: from the stats of the last 15 minutes;
//   - changes: from the changelog, which has the last 500 or so;
//   - queues, servers and payloads: from asynq.
//
// Times are Redis's. The script shows them in the browser's zone. If Redis is down, the page keeps
// showing the last data with its age.
//
// # Access
//
// Programs send the token in "Authorization: Bearer TOKEN". A browser opens the page once with
// ?token=TOKEN and gets a cookie for twelve hours. Wrong guesses are neither counted nor slowed down:
// use a long token, put the page behind a proxy that signs people in, or set Options.Authenticate.
// Without any of these, the page answers only browsers on the same machine.
//
// # Security
//
// Types, payloads and keys of jobs are untrusted text: the page cuts and escapes them, and hides the
// values of fields with secret names (see Options.Redact). A Content-Security-Policy allows no
// scripts but its own files. Changes are confirmed on a page of their own and made by a POST, which
// is refused from other sites.
//
// Behind a proxy give the page a token. It may have any path prefix, because links are relative, but
// the page must get the path without it.
package page

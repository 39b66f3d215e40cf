// Package page serves a live page that shows which jobs wait for which limit, and how long, and lets an
// operator change limits.
//
//	p, err := page.New(page.Options{Limiter: limiter, Token: token})
//	…
//	http.Handle("/headgate/", http.StripPrefix("/headgate", p))
//
// It needs nothing but Redis, and works without JavaScript; the script updates it every two seconds.
// Each process reads for its own viewers, at most once a second, and nothing without a viewer. Charts
// show 15 minutes. Times are Redis's, in the browser's zone. If Redis is down, the page shows the last
// data with its age.
//
// # Access
//
// Programs send the token in "Authorization: Bearer TOKEN". A browser opens the page once with
// ?token=TOKEN and gets a cookie for twelve hours. Wrong guesses are neither counted nor slowed down:
// use a long token, put the page behind a proxy that signs people in, or set Options.Authenticate.
// Without a token and Authenticate, the page answers only browsers on the same machine. Behind a proxy,
// give it a token. Links are relative, so the page can have any path prefix that the proxy or
// http.StripPrefix removes.
//
// # Security
//
// Types, payloads and keys of jobs are untrusted text: the page cuts and escapes them, and hides the
// values of fields with secret names (see Options.Redact). A Content-Security-Policy allows no scripts
// but its own files. Changes are confirmed on a page of their own and made by a POST, which is refused
// from other sites.
package page

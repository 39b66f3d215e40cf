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
package page

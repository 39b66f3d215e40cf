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
// When a browser asks, and at most once a second, the reader makes a snapshot of what Redis says. A view turns that,
// and what it reads itself for its own query, into HTML, once for all who look at
// the same; the script asks for the page again every two seconds and changes what differs. The pages are
// made on the server and work without the script, which only keeps them up to date.
// All that comes from jobs is somebody else's text: it is cut, made visible and
// freed of secrets before it is shown.
//
// # Where it comes from
//
//   - What limits allow, how full their meters are, what waits and in which lanes:
//     the limiter, in the turn or a few seconds before.
//   - Curves, rates and examples of denials: the history that processes write, which
//     goes back a quarter of an hour.
//   - Who changed what: the changelog, of which Redis keeps some 500 entries.
//   - Queues, servers, archived jobs and any job's payload: asynq.
//
// What is said of limits and of what waits is by Redis's clock. Moments are shown in
// the zone of the process, but for ticks, which have their schedule's, and under
// curves, which the browser draws. Where Redis is away the page keeps what it knew,
// and says of when that is.
//
// # What a look costs
//
// A turn is five round trips: Redis's time, the numbers of what waits, the newest
// line of the changelog, the history since the last turn, and a hundred meters at
// once, of which there are five hundred at most. Who wants which keys is read every
// two seconds, or more seldom where that takes long; asynq's queues every five; the
// limits when anything of them has changed, or after half a minute. What a view needs
// for its own query alone is read for each request. A forecast is made every two seconds while
// anything waits or is pending. Each replica reads for itself while people look at it.
//
// # Who may look
//
// A program sends the token in "Authorization: Bearer TOKEN" with each request. A browser opens
// the page once with ?token=TOKEN and has a cookie in its place for twelve hours; the answer
// leads to the address without the token. If there is a user and a password, browsers ask for
// them by themselves (HTTP Basic). Replicas with the same token know each other's cookies, and
// another token ends all cookies. Guesses are neither counted nor slowed down: use a long
// token, or put the page behind a proxy that signs people in, or give Options.Authenticate.
//
// # What others may try
//
// Whoever can enqueue a job chooses its type, its payload and its keys, and so what
// stands here. It is escaped for the place it stands in; what got through
// all the same could not run, as the page allows no script but its own files. A
// link changes nothing: each change is asked for on a page of its own and made by a
// POST, which is refused from other sites.
//
// Names in payloads and headers that stand for secrets have their values hidden, and
// so have, in any text, URLs with a password and the values of Authorization headers.
// What has no such name is shown: Options.Redact adds names.
//
// # Behind a proxy
//
// Give the page a token. The prefix may be any, as links are
// relative, but the path must reach the page without it. The cookie is
// marked Secure only where this process speaks TLS itself.
package page

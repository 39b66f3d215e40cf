package page

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboards/page/internal/auth"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redact"
	"github.com/headgate/headgate/throttle"
)

// Options say what a page shows, and to whom. Redis and Limiter are required.
type Options struct {
	// Redis is where the asynq queues and the limiter's scope are. It is the
	// caller's to close, after the page.
	Redis redis.UniversalClient
	// Limiter is the scope's.
	Limiter *throttle.Limiter
	// Scope is the limiter's, for the title and the history. The zero value means
	// "default".
	Scope string
	// KeyOf says what a limit counts by, such as "host(payload.url)"; the empty
	// text where it has no keys. Nil means that only what waits can tell.
	KeyOf func(limit string) (by string, known bool)
	// SpellKey is a key that a user typed, in the spelling of the jobs that use the limit. Nil
	// leaves keys as they were typed.
	SpellKey func(limit, key string) (string, error)

	// Token, or User and Password, let a browser in. Without any of them, and
	// without Authenticate, only browsers on this machine are let in. A token is sent
	// in "Authorization: Bearer TOKEN", or in a cookie that an address with ?token=TOKEN
	// sets; a user and a password are sent as HTTP Basic. Wrong guesses are not counted, so a
	// Token or a Password has at least eight characters, and thirty are better. Set one behind
	// any proxy: not every proxy can be told from a browser on this machine.
	Token, User, Password string
	// HTTPS says that browsers come by https through a proxy, so that they send the
	// cookie by nothing else. What comes by TLS needs no word.
	HTTPS bool
	// Authenticate lets a request in, and says whose it is, instead of Token, User
	// and Password: for programs that know their users. The user stands in the
	// changelog beside what was changed. It is asked for every request.
	Authenticate func(*http.Request) (user string, ok bool)
	// ReadOnly takes away everything that changes anything: the buttons, and what
	// they ask for.
	ReadOnly bool
	// Redact names fields of payloads and headers whose values are not shown, in
	// any case, where * stands for any text. Authorization and cookies never are,
	// nor what is called password, secret, token or api key.
	Redact []string
	// Log hears what users change. The zero value means slog.Default.
	Log *slog.Logger
}

// Page is the handler of the page. It may be mounted at any prefix that ends with
// a slash, with http.StripPrefix: links are relative, so it need not know it. It is
// safe for concurrent use, as handlers are.
type Page struct {
	Options
	// queues are asynq's, in Options.Redis. Its Inspector takes no contexts, so its calls
	// end when they are answered, or by the Redis client's own timeouts.
	queues   *inspect.Queues
	reader   *reader
	auth     *auth.Auth
	redactor redactor
	// handler is the way of a request: the check of where it comes from, then the
	// door, then routed.
	handler, routed http.Handler
	ctx             context.Context // ends with Close
	cancel          context.CancelFunc
}

// redirect sends the browser to another page of the folder, to be read with GET (303).
// The path is relative, as the prefix is not known; http.Redirect would make it absolute
// without it.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// fail answers with a page that says what is wrong. What it says is shown as it is, so
// foreign texts in it have been made visible and freed of secrets before.
func (p *Page) fail(w http.ResponseWriter, code int, says string) {
	p.write(w, code, "message", frame{Page: p, Title: http.StatusText(code), Data: says})
}

// frame is what every template gets: the page itself with its options, and what is
// this one's.
type frame struct {
	*Page
	Title string
	// View is the view's name, for the navigation; empty for the first one.
	View string
	// Of is the view and its query, as place writes them: where an action comes back to.
	Of string
	// Live is whether it changes while somebody looks.
	Live bool
	// Snap is nil on pages that show nothing of Redis: messages and the
	// questions before an action.
	Snap *snapshot
	// Data is what the template shows.
	Data any
}

// Clean is a foreign text as it is shown: without secrets, and cut.
func (f frame) Clean(text string, most int) string {
	return f.redactor.shown(text, most)
}

// Block is a payload or a result as it is shown.
func (f frame) Block(data []byte) string { return f.redactor.block(data) }

// Header is a header's value as it is shown: of one whose name is a secret's nothing, and
// others may have one in their text, such as a URL with a password.
func (f frame) Header(name, value string) string {
	if f.redactor.Hides(name) {
		return redact.Hidden
	}
	return oneLine(f.redactor.shown(value, shortText))
}

// write executes a whole page, into memory first: one that cannot be made is an error
// to the browser and no half of a page.
func (p *Page) write(w http.ResponseWriter, code int, name string, f frame) {
	var out bytes.Buffer
	if err := execute(&out, name, f); err != nil {
		p.Log.Error("the page could not be made", "page", name, "error", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // who has left needs no answer
}

// failRead answers where Redis cannot be read. The error is shown as any foreign text is:
// without secrets, and cut.
func (p *Page) failRead(w http.ResponseWriter, err error) {
	p.Log.Warn("the page cannot read Redis", "error", err)
	p.fail(w, http.StatusServiceUnavailable, "Redis cannot be read: "+p.redactor.shown(err.Error(), 300))
}

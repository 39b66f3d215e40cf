package page

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/scheduler/lanes"
)

// Options say what a page shows, and to whom. Redis and Limiter are required.
type Options struct {
	// Redis is where the asynq queues and the limiter's scope are. It is the
	// caller's to close, after the page.
	Redis redis.UniversalClient
	// Limiter is the scope's.
	Limiter *lanes.Lanes
	// Scope is the limiter's, for the title and the history. The zero value means
	// "default".
	Scope string
	// Schedules are shown with their ticks. Nil means that there are none.
	Schedules *cron.Runner
	// KeyOf says what a limit counts by, such as "host(payload.url)"; the empty
	// text where it has no keys. Nil means that only what waits can tell.
	KeyOf func(limit string) (by string, known bool)

	// Token, or User and Password, let a browser in. Without any of them, and
	// without Authenticate, only browsers on this machine are let in. Sessions are
	// signed with them: another one ends all sessions, and replicas with the same
	// know each other's. A Token and a Password have at least eight characters; longer
	// is better. Set one behind any proxy: not every proxy can be told from a
	// browser on this machine.
	Token, User, Password string
	// HTTPS says that browsers come by https through a proxy, so that they send the
	// session's cookie by nothing else. What comes by TLS needs no word.
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

// minSecret is how many characters a token or password has at least: at eight guesses a
// second a shorter one could be found.
const minSecret = 8

func (o Options) validate() error {
	var errs []error
	if o.Redis == nil || o.Limiter == nil {
		errs = append(errs, errors.New("page: Redis and Limiter are required"))
	}
	if o.Token != "" && utf8.RuneCountInString(o.Token) < minSecret {
		errs = append(errs, fmt.Errorf("page: Token: want at least %d characters", minSecret))
	}
	if o.Password != "" && utf8.RuneCountInString(o.Password) < minSecret {
		errs = append(errs, fmt.Errorf("page: Password: want at least %d characters", minSecret))
	}
	if (o.User == "") != (o.Password == "") {
		errs = append(errs, errors.New("page: want User and Password, or neither"))
	}
	if o.Authenticate != nil && o.credentials() {
		errs = append(errs, errors.New("page: want Authenticate, or a Token or a User, not both"))
	}
	return errors.Join(errs...)
}

func (o Options) credentials() bool { return o.Token != "" || o.User != "" }

package page

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/scheduler/cron"
	"github.com/headgate/headgate/throttle"
)

// Options say what a page shows, and to whom. Redis and Limiter are required.
type Options struct {
	// Redis is where the asynq queues and the limiter's scope are. It is the
	// caller's to close, after the page.
	Redis redis.UniversalClient
	// Limiter is the scope's.
	Limiter *throttle.Lanes
	// Scope is the limiter's, for the title and the history. The zero value means
	// "default".
	Scope string
	// Schedules are shown with their ticks. Nil means that there are none.
	Schedules *cron.Runner
	// KeyOf says what a limit counts by, such as "host(payload.url)"; the empty
	// text where it has no keys. Nil means that only what waits can tell.
	KeyOf func(limit string) (by string, known bool)

	// Token, or User and Password, let a browser in. Without any of them, and
	// without Authenticate, only browsers on this machine are let in. They are also
	// what sessions are signed with: another one ends all sessions, and replicas
	// with the same know each other's. Choose long ones, and set one behind any
	// proxy: not every proxy can be told from a browser on this machine.
	Token, User, Password string
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

// validate reports everything that is wrong with the options.
func (o Options) validate() error {
	var errs []error
	if o.Redis == nil || o.Limiter == nil {
		errs = append(errs, errors.New("page: Redis and Limiter are required"))
	}
	if (o.User == "") != (o.Password == "") {
		errs = append(errs, errors.New("page: want User and Password, or neither"))
	}
	if o.Authenticate != nil && o.credentials() {
		errs = append(errs, errors.New("page: want Authenticate, or a Token or a User, not both"))
	}
	return errors.Join(errs...)
}

// credentials reports whether the page itself knows who may come in.
func (o Options) credentials() bool { return o.Token != "" || o.User != "" }

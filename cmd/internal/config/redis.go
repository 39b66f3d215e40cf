package config

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/cmd/internal/embedded"
	"github.com/headgate/headgate/internal/redishealth"
)

// Redis says which Redis to use. The zero value names none: the embedded Redis is used.
type Redis struct {
	beside   string // the folder of the config, in which the embedded Redis has its own
	single   *redis.Options
	sentinel *redis.FailoverOptions
	cluster  *redis.ClusterOptions
	tls      TLS
	byTLS    bool // whether connections are
	shown    string
}

const redisForms = "redis://HOST:PORT/DB, rediss://… (TLS), unix:///PATH?db=N, " +
	"redis-sentinel://HOST,HOST/MASTER/DB or redis-cluster://HOST,HOST"

// ParseRedisURL reads where Redis is:
//
//	redis://user:password@host:6379/0     one server
//	unix:///run/redis.sock?db=0           one server, by its socket
//	redis-sentinel://h1:26379,h2/master/0 the master that sentinels know
//	redis-cluster://h1:6379,h2            a cluster, from any of its nodes
//
// rediss://, rediss-sentinel:// and rediss-cluster:// are the same over TLS.
// After a ? come go-redis's options, such as pool_size=50. User and password
// of a redis-sentinel URL are for the sentinels; those of the master are the
// options username and password. No error shows the URL: it can hold a
// password.
func ParseRedisURL(text string) (Redis, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(text), "://")
	if strings.HasPrefix(scheme, "${") {
		return Redis{}, errors.New("not a Redis URL: this field takes no ${…}: leave it out, and set HEADGATE_REDIS in the environment to the URL")
	}
	if !ok {
		return Redis{}, errors.New("not a Redis URL: want " + redisForms)
	}
	r, err := readRedis(scheme, rest)
	if err != nil {
		return Redis{}, fmt.Errorf("not a Redis URL: %w", reason(err))
	}
	return r, nil
}

func readRedis(scheme, rest string) (r Redis, err error) {
	transport, kind, _ := strings.Cut(scheme, "-")
	port, known := map[string]string{"": "6379", "sentinel": "26379", "cluster": "6379"}[kind]
	if !known || transport != "redis" && transport != "rediss" && scheme != "unix" {
		return r, fmt.Errorf("scheme %q: want %s", scheme, redisForms)
	}
	end := strings.IndexAny(rest+"/", "/?#")
	if strings.Contains(rest[end:], "@") {
		return r, errors.New("want %XX for special characters in a user name or password")
	}
	at := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[at:end], ",")
	u, err := url.Parse(transport + "://" + rest[:at] + hosts[0] + rest[end:])
	if err != nil {
		return r, err
	}
	r.byTLS = transport == "rediss"
	r.shown = scheme + "://" + rest[at:end] + u.Path
	query, db := u.Query(), strings.Trim(u.Path, "/")
	hosts[0] = u.Host // its %XX are read
	for i, host := range hosts {
		if hosts[i], err = withPort(host, port); err != nil {
			return r, err
		}
	}
	switch {
	case kind == "" && len(hosts) > 1:
		return r, fmt.Errorf("several hosts: want %s-cluster:// or %s-sentinel://", transport, transport)
	case kind == "":
		r.single, err = redis.ParseURL(u.String())
		return r, err
	case kind == "cluster" && db != "" && db != "0":
		return r, errors.New("a cluster has only database 0: leave the path out")
	}
	// As go-redis wants them: the other hosts, and the master, are options.
	query["addr"] = append(query["addr"], hosts[1:]...)
	u.Host = hosts[0]
	if kind == "cluster" {
		u.RawQuery = query.Encode()
		r.cluster, err = redis.ParseClusterURL(u.String())
		return r, err
	}
	master, db, _ := strings.Cut(db, "/")
	if master == "" {
		return r, errors.New("want the name of the master after the hosts, as in redis-sentinel://HOST,HOST/MASTER")
	}
	query.Set("master_name", master)
	u.Path, u.RawQuery = "/"+db, query.Encode()
	r.sentinel, err = redis.ParseFailoverURL(u.String())
	return r, err
}

// withPort is a host with its port, or with the usual one.
func withPort(host, usual string) (string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	port = cmp.Or(port, usual)
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("port %s: want 1 to 65535", port)
	}
	return net.JoinHostPort(name, port), nil
}

// Embedded is a Redis that this process or another of the user runs.
func Embedded(options *redis.Options) Redis {
	return Redis{single: options, shown: "the embedded one"}
}

// reason is an error without any part of the URL that net/url or go-redis
// would show.
func reason(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return errors.New("want HOST:PORT, and %XX for special characters in a user name or password")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}

// Patience with Redis, where the URL does not say otherwise. asynq runs a
// finished job again, about a minute later, if the command that says so fails;
// so it is repeated for some seconds first.
const (
	maxRetries      = 10
	maxRetryBackoff = time.Second
)

func (d *decoder) checkRedis(r *Redis, t TLS) {
	d.checkTLS("redis_tls")
	if err := r.UseTLS(t); err != nil {
		d.errorf("redis", "%v, as there is redis_tls", err)
	}
}

// IsZero reports whether no Redis is configured.
func (r Redis) IsZero() bool { return r.single == nil && r.sentinel == nil && r.cluster == nil }

// UseTLS has connections trust and show what t says, beside what the URL says. The files
// are read by Connect. A URL that is not by TLS is refused.
func (r *Redis) UseTLS(t TLS) error {
	if t != (TLS{}) && !r.IsZero() && !r.byTLS {
		return fmt.Errorf("%s is not by TLS: want rediss:// in place of redis://", r)
	}
	r.tls = t
	return nil
}

// client makes a client of r, which must not be zero; it connects with its first command. A
// hasty one tries each command once. The error begins with redis_tls.
func (r Redis) client(hasty bool) (redis.UniversalClient, error) {
	own, err := r.tls.Config()
	if err != nil {
		return nil, fmt.Errorf("redis_tls.%w", err)
	}
	var rdb redis.UniversalClient
	switch r = r.tuned(own, hasty); {
	case r.sentinel != nil:
		rdb = redis.NewFailoverClient(r.sentinel)
	case r.cluster != nil:
		rdb = redis.NewClusterClient(r.cluster)
	default:
		rdb = redis.NewClient(r.single)
	}
	rdb.AddHook(explainer{r.User()})
	return rdb, nil
}

// tuned is a copy of r with patience filled in, and without go-redis's watch for maintenance of
// managed servers, which looks up names of its own. TLS checks each of several servers by the
// name it was dialled with, where go-redis would hold all of them to the first one's.
func (r Redis) tuned(own *tls.Config, hasty bool) Redis {
	tune := func(by **tls.Config, retries *int, backoff *time.Duration) {
		if url := *by; url != nil {
			*by = cmp.Or(own, url).Clone()
			(*by).ServerName, (*by).MinVersion = url.ServerName, max((*by).MinVersion, url.MinVersion)
			if r.single == nil {
				(*by).ServerName = ""
			}
		}
		*retries = cmp.Or(*retries, maxRetries)
		*backoff = cmp.Or(*backoff, maxRetryBackoff)
		if hasty {
			*retries = -1
		}
	}
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case r.sentinel != nil: // whose client has no such watch
		r.sentinel = new(*r.sentinel)
		tune(&r.sentinel.TLSConfig, &r.sentinel.MaxRetries, &r.sentinel.MaxRetryBackoff)
	case r.cluster != nil:
		r.cluster = new(*r.cluster)
		tune(&r.cluster.TLSConfig, &r.cluster.MaxRetries, &r.cluster.MaxRetryBackoff)
		r.cluster.MaintNotificationsConfig = off
		if hasty {
			r.cluster.MaxRedirects = -1
		}
	case r.single != nil:
		r.single = new(*r.single)
		tune(&r.single.TLSConfig, &r.single.MaxRetries, &r.single.MaxRetryBackoff)
		r.single.MaintNotificationsConfig = off
	}
	return r
}

// User is the user of Redis as whom commands are sent.
func (r Redis) User() string {
	user := ""
	switch {
	case r.sentinel != nil:
		user = r.sentinel.Username
	case r.cluster != nil:
		user = r.cluster.Username
	case r.single != nil:
		user = r.single.Username
	}
	return cmp.Or(user, "default")
}

// String is the URL without user, password and options.
func (r Redis) String() string { return r.shown }

// UnmarshalText is ParseRedisURL, for config files.
func (r *Redis) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRedisURL(string(text))
	return err
}

// How long a command tries to reach Redis before it gives up: patience for an
// answer, and less where nobody listens, which is hardly ever a matter of time.
var patience = 3 * time.Second

const (
	refusedPatience = time.Second
	pause           = 50 * time.Millisecond
)

// ErrNoRedis is what commands say that only look, if there is nothing to look at.
var ErrNoRedis = errors.New("no Redis is configured, and no worker or enqueue has kept jobs there")

// folder is where the embedded Redis has its data: beside the config file or, if that is not a
// file with a folder of its own but a pipe, in the current folder.
func folder(config string) string {
	if stat, err := os.Stat(config); err != nil || !stat.Mode().IsRegular() {
		return "."
	}
	return filepath.Dir(config)
}

// Folder is where the embedded Redis has its data.
func (r Redis) Folder() string { return filepath.Join(r.beside, embedded.FolderName) }

// Create is Connect for commands that add jobs: it makes the folder of the embedded Redis. say
// is told what a person should know of that Redis.
func (r Redis) Create(ctx context.Context, say func(line string)) (rdb redis.UniversalClient, end func() error, err error) {
	if !r.IsZero() {
		return r.Connect(ctx)
	}
	store, err := embedded.Open(ctx, r.Folder(), say)
	if err != nil {
		return nil, nil, err
	}
	rdb, err = Embedded(&redis.Options{Network: "unix", Addr: store.Socket}).Client()
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	return rdb, func() error { return errors.Join(rdb.Close(), store.Close()) }, nil
}

// Connect returns a client of r, or of the embedded Redis if r is zero. Redis has answered when
// it returns; else the error is that of Reach. The caller calls end, which also ends an embedded
// Redis that this process runs.
func (r Redis) Connect(ctx context.Context) (rdb redis.UniversalClient, end func() error, err error) {
	if r.IsZero() {
		if _, err := os.Stat(r.Folder()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%w: there is no %s; write redis: in headgate.yaml, use --redis URL, or start \"worker run\" or \"enqueue\" first", ErrNoRedis, r.Folder())
		}
		return r.Create(ctx, func(string) {})
	}
	if err = r.Reach(ctx); err == nil {
		rdb, err = r.Client()
	}
	if err != nil {
		return nil, nil, err
	}
	return rdb, rdb.Close, nil
}

// Client returns a client of r, which must not be zero. It connects with its first command.
func (r Redis) Client() (redis.UniversalClient, error) { return r.client(false) }

// Reach waits some seconds for r, which must not be zero, to answer. The error says in one line
// which Redis could not be reached, and why.
func (r Redis) Reach(ctx context.Context) error {
	hasty, err := r.client(true)
	if err != nil {
		return err
	}
	defer hasty.Close()
	if err = answers(ctx, hasty); err == nil {
		return nil
	}
	what := "cannot reach Redis at %s: %w"
	switch {
	case redishealth.Of(err) == redishealth.NoPassword:
		return &SignInError{fmt.Errorf("Redis at %s wants a password, and the URL has none: write redis://USER:PASSWORD@HOST:PORT: %w", r, err)}
	case redishealth.Of(err) == redishealth.Password:
		return &SignInError{fmt.Errorf("Redis at %s refuses the password of the user %s, or there is no such user: %w", r, r.User(), err)}
	case r.byTLS && errors.Is(err, context.DeadlineExceeded):
		what = "Redis at %s does not answer; it may be one without TLS, which is redis://: %w"
	case !r.byTLS && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		what = "Redis at %s hangs up; it may be one with TLS, which is rediss://: %w"
	}
	return fmt.Errorf(what, r, err)
}

// A SignInError says that Redis does not let the user of its URL in: the config is wrong.
type SignInError struct{ error }

// Unwrap is the error itself.
func (e *SignInError) Unwrap() error { return e.error }

// answers waits for Redis, as long as that may help. It asks through a client that tries once:
// what a patient one says in the end is only that it ran out of time.
func answers(ctx context.Context, hasty redis.UniversalClient) (err error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if said := hasty.Ping(ctx).Err(); err == nil || ctx.Err() == nil {
			err = said
		}
		refused := errors.Is(err, syscall.ECONNREFUSED) && time.Since(start) > refusedPatience
		if !MayPass(err) || refused || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// MayPass reports whether what Reach says may pass by itself: a server that is away may come
// back, and a server that has too many connections may lose some.
func MayPass(err error) bool {
	t := redishealth.Of(err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return t == redishealth.Clients || t != redishealth.None && t.Passes() && !untrusted
}

// go-redis returns what it would write to standard error.
func init() { logging.Disable() }

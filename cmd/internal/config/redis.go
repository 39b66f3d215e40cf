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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/cmd/internal/embedded"
	"github.com/headgate/headgate/internal/redishealth"
	"github.com/headgate/headgate/internal/script"
)

// Redis is the address of a Redis. The zero value means the embedded Redis.
type Redis struct {
	configFolder string // for the embedded Redis
	options      any    // *redis.Options, *redis.FailoverOptions or *redis.ClusterOptions; nil for the embedded Redis
	user         string // "" means the user named default
	tls          TLS
	usesTLS      bool   // whether the URL is for TLS
	shown        string // the URL without user, password and options
}

const redisForms = "redis://HOST:PORT/DB, rediss://… (TLS), unix:///PATH?db=N, " +
	"redis-sentinel://HOST,HOST/MASTER/DB or redis-cluster://HOST,HOST"

// ParseRedisURL reads the URL of a Redis:
//
//	redis://user:password@host:6379/0     one server
//	unix:///run/redis.sock?db=0           one server, by its socket
//	redis-sentinel://h1:26379,h2/master/0 the master that sentinels know
//	redis-cluster://h1:6379,h2            a cluster, from any of its nodes
//
// rediss://, rediss-sentinel:// and rediss-cluster:// are the same over TLS. Options of go-redis
// can follow after a ?, such as pool_size=50. The user and password of a redis-sentinel URL are for
// the sentinels. The options username and password are for the master. No error shows the URL,
// because a URL can have a password.
func ParseRedisURL(text string) (Redis, error) {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(text), "://")
	if strings.Contains(text, "${") {
		return Redis{}, errors.New("not a Redis URL: ${…} is not possible here: want the environment variable HEADGATE_REDIS instead of this field")
	}
	if !ok {
		return Redis{}, errors.New("not a Redis URL: want " + redisForms)
	}
	r, err := readRedis(scheme, rest)
	if err != nil {
		return Redis{}, fmt.Errorf("not a Redis URL: %w", withoutURL(err))
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
	r.usesTLS, r.user = transport == "rediss", u.User.Username()
	r.shown = scheme + "://" + rest[at:end] + u.Path
	query, db := u.Query(), strings.Trim(u.Path, "/")
	hosts[0] = u.Host // without %XX
	for i, host := range hosts {
		if hosts[i], err = withPort(host, port); err != nil {
			return r, err
		}
	}
	switch {
	case kind == "" && len(hosts) > 1:
		return r, fmt.Errorf("several hosts: want %s-cluster:// or %s-sentinel://", transport, transport)
	case kind == "":
		r.options, err = redis.ParseURL(u.String())
		return r, err
	case kind == "cluster" && db != "" && db != "0":
		return r, errors.New("a cluster has only database 0: leave the path out")
	}
	// go-redis takes the other hosts and the name of the master as options.
	query["addr"] = append(query["addr"], hosts[1:]...)
	u.Host = hosts[0]
	if kind == "cluster" {
		u.RawQuery = query.Encode()
		r.options, err = redis.ParseClusterURL(u.String())
		return r, err
	}
	r.user = query.Get("username")
	master, db, _ := strings.Cut(db, "/")
	if master == "" {
		return r, errors.New("want the name of the master after the hosts, as in redis-sentinel://HOST,HOST/MASTER")
	}
	query.Set("master_name", master)
	u.Path, u.RawQuery = "/"+db, query.Encode()
	r.options, err = redis.ParseFailoverURL(u.String())
	return r, err
}

// withPort adds the usual port if the host has none.
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

// Embedded returns the address of an embedded Redis that a process of this user runs already. Unlike
// the zero value, it never starts one.
func Embedded(options *redis.Options) Redis {
	return Redis{options: options, shown: shownEmbedded}
}

const shownEmbedded = "the embedded one"

// withoutURL replaces an error of net/url, because the error contains the URL.
func withoutURL(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return errors.New("want HOST:PORT, and %XX for special characters in a user name or password")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "redis: "))
}

// Defaults of the URL's options. A client repeats a failed command for some seconds. If the command
// that acknowledges a finished job failed, asynq would run the job again.
const (
	maxRetries      = 10
	maxRetryBackoff = time.Second
	readTimeout     = 5 * time.Second // also for writes; go-redis waits for 3 s, or 5 s from v9.22.0 on

	clusterReloadInterval = 5 * time.Second
)

func (d *decoder) checkRedis(r *Redis, t TLS) {
	d.checkTLS("redis_tls")
	if err := r.UseTLS(t); err != nil {
		d.errorf("redis", "%v, as there is redis_tls", err)
	}
}

// IsZero reports whether no Redis is configured.
func (r Redis) IsZero() bool { return r.options == nil }

// UseTLS sets the certificates of later clients. If t is not zero and the URL is without TLS, UseTLS
// returns an error.
func (r *Redis) UseTLS(t TLS) error {
	if t != (TLS{}) && !r.IsZero() && !r.usesTLS {
		return fmt.Errorf("%s is without TLS: want rediss:// instead of redis://", r)
	}
	r.tls = t
	return nil
}

// client is Client. If retries is false, the client sends each command once. By default, a client of
// go-redis ignores the deadlines of contexts while it waits for a reply; ContextTimeoutEnabled
// changes that.
func (r Redis) client(retries bool) (rdb redis.UniversalClient, err error) {
	own, err := r.tls.Config()
	if err != nil {
		return nil, fmt.Errorf("redis_tls.%w", err)
	}
	// If there are several servers, ServerName stays empty: each server has a certificate for its own
	// name.
	tune := func(used **tls.Config, oneServer bool, tries *int, backoff, timeout *time.Duration) {
		if fromURL := *used; fromURL != nil {
			*used = cmp.Or(own, fromURL).Clone()
			(*used).ServerName, (*used).MinVersion = "", fromURL.MinVersion
			if oneServer {
				(*used).ServerName = fromURL.ServerName
			}
		}
		*tries = cmp.Or(*tries, maxRetries)
		*backoff = cmp.Or(*backoff, maxRetryBackoff)
		*timeout = cmp.Or(*timeout, readTimeout)
		if !retries {
			*tries = -1
		}
	}
	// For notifications about maintenance, go-redis would resolve host names before it connects.
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch o := r.options.(type) {
	case *redis.FailoverOptions:
		o = new(*o)
		tune(&o.TLSConfig, false, &o.MaxRetries, &o.MaxRetryBackoff, &o.ReadTimeout)
		o.ContextTimeoutEnabled = true
		rdb = redis.NewFailoverClient(o)
	case *redis.ClusterOptions:
		o = new(*o)
		tune(&o.TLSConfig, false, &o.MaxRetries, &o.MaxRetryBackoff, &o.ReadTimeout)
		o.ContextTimeoutEnabled = true
		o.MaintNotificationsConfig = off
		if !retries {
			o.MaxRedirects = -1
		}
		o.ClusterStateReloadInterval = clusterReloadInterval // for this time, commands can fail after a failover
		rdb = redis.NewClusterClient(o)
	case *redis.Options:
		o = new(*o)
		tune(&o.TLSConfig, true, &o.MaxRetries, &o.MaxRetryBackoff, &o.ReadTimeout)
		o.ContextTimeoutEnabled = true
		o.MaintNotificationsConfig = off
		rdb = redis.NewClient(o)
	}
	rdb.AddHook(explainer{r.User()})
	return rdb, nil
}

// User returns the user that sends the commands.
func (r Redis) User() string { return cmp.Or(r.user, "default") }

// String returns the URL without user, password and options.
func (r Redis) String() string { return r.shown }

// UnmarshalText is ParseRedisURL, for config files.
func (r *Redis) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRedisURL(string(text))
	return err
}

// reachTimeout is how long Reach waits for a slow Redis. Then a one-shot command ends with exit code
// 1, and a worker tries again.
var reachTimeout = 10 * time.Second

const (
	refusedTimeout = time.Second // is reachTimeout while connections are refused
	pingInterval   = 50 * time.Millisecond
)

// ErrNoRedis means that no Redis is configured, and that the embedded Redis has no data.
var ErrNoRedis = errors.New("no Redis is configured, and the embedded Redis has no data yet")

// folderOf returns the folder of the config file, or the current folder if the config is a pipe.
func folderOf(config string) string {
	if stat, err := os.Stat(config); err != nil || !stat.Mode().IsRegular() {
		return "."
	}
	return filepath.Dir(config)
}

// Folder returns the folder of the embedded Redis.
func (r Redis) Folder() string { return filepath.Join(r.configFolder, embedded.FolderName) }

// ConnectOrCreate is Connect for commands that add or run jobs. If r is zero, ConnectOrCreate also
// creates the folder of the embedded Redis, and calls say with messages about this Redis.
func (r Redis) ConnectOrCreate(ctx context.Context, say func(line string)) (rdb redis.UniversalClient, end func() error, err error) {
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

// Connect returns a client of r, or of the embedded Redis if r is zero, after Redis has answered.
// end closes the client, and stops the embedded Redis if this process runs it. If the embedded Redis
// has no folder, the error wraps ErrNoRedis.
func (r Redis) Connect(ctx context.Context) (rdb redis.UniversalClient, end func() error, err error) {
	if r.IsZero() {
		if _, err := os.Stat(r.Folder()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, fmt.Errorf("%w: there is no %s; write redis: in headgate.yaml, use --redis URL, or start \"worker run\" or \"enqueue\" first", ErrNoRedis, r.Folder())
		}
		return r.ConnectOrCreate(ctx, func(string) {})
	}
	if err = r.Reach(ctx); err == nil {
		rdb, err = r.Client()
	}
	if err != nil {
		return nil, nil, err
	}
	return rdb, func() error { CloseClient(rdb); return nil }, nil
}

// closeTime is how long a command waits for the end of its client's connections.
const closeTime = 100 * time.Millisecond

// CloseClient closes a client. It does not wait longer than closeTime, because a client that asks
// sentinels in vain cannot be closed meanwhile.
func CloseClient(rdb redis.UniversalClient) {
	closed := make(chan struct{})
	go func() {
		_ = rdb.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeTime):
	}
}

// Client returns a client of r. r must not be zero. The client connects when it sends its first
// command. An error is about the TLS files, and begins with redis_tls.
func (r Redis) Client() (redis.UniversalClient, error) { return r.client(true) }

// Reach waits some seconds for an answer of r. r must not be zero. The error has one line.
func (r Redis) Reach(ctx context.Context) error {
	rdb, err := r.client(false)
	if err != nil {
		return err
	}
	defer CloseClient(rdb)
	if err = ping(ctx, rdb); err == nil {
		return nil
	}
	what := "cannot reach Redis at %s: %w"
	switch {
	case redishealth.ProblemOf(err) == redishealth.NoPassword:
		return &SignInError{fmt.Errorf("Redis at %s requires a password, and the URL has none: want redis://USER:PASSWORD@HOST:PORT: %w", r, err)}
	case redishealth.ProblemOf(err) == redishealth.WrongPassword:
		return &SignInError{fmt.Errorf("Redis at %s rejects the password of user %s, or the user does not exist: %w", r, r.User(), err)}
	case r.usesTLS && errors.Is(err, context.DeadlineExceeded):
		what = "Redis at %s does not answer; if it has no TLS, use redis://: %w"
	case !r.usesTLS && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		what = "Redis at %s closes the connection; if it has TLS, use rediss://: %w"
	}
	return fmt.Errorf(what, r, err)
}

// A SignInError means that Redis rejects the user or password of the URL.
type SignInError struct{ error }

// Unwrap returns the error with its cause.
func (e *SignInError) Unwrap() error { return e.error }

// ping waits until Redis answers, or returns the latest error. rdb must send each command once. If
// rdb retried, the error would be a timeout, and not the cause.
func ping(ctx context.Context, rdb redis.UniversalClient) (err error) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for {
		latest := rdb.Ping(ctx).Err()
		if err == nil || !redishealth.IsUnanswered(latest) { // no answer says less than an earlier error
			err = latest
		}
		refused := errors.Is(err, syscall.ECONNREFUSED) && time.Since(start) > refusedTimeout
		if !MayGoAway(err) || refused || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pingInterval):
		}
	}
}

// MayGoAway reports whether an error of Reach can end without a change of the config. Examples are
// an outage and too many connections.
func MayGoAway(err error) bool {
	t := redishealth.ProblemOf(err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	said, ok := errors.AsType[*net.OpError](err)
	alert := ok && said.Op == "remote error" // of TLS: Redis wants another certificate, or another version
	return t == redishealth.TooManyClients || t != redishealth.None && t.IsTemporary() && !untrusted && !alert
}

func init() { logging.Disable() } // go-redis also returns the errors that it logs

// explainer is a hook of a Redis client that explains errors for people. It names missing rights as
// [script.Explain] does. If Redis refuses all jobs, it says why in place of Redis's text.
type explainer struct{ user string }

// refused is an error of Redis with the description of its Problem.
type refused struct {
	error
	problem redishealth.Problem
}

func (r *refused) Error() string { return "Redis refuses this: " + r.problem.Description() }
func (r *refused) Unwrap() error { return r.error }

func (e explainer) explain(err error, cmd redis.Cmder) error {
	err = script.Explain(err, e.user, cmd)
	switch p := redishealth.ProblemOf(err); p {
	case redishealth.None, redishealth.Unreachable, redishealth.NoPassword, redishealth.WrongPassword, redishealth.NoRights:
		return err
	default:
		return &refused{err, p}
	}
}

func (explainer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e explainer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			cmd.SetErr(e.explain(err, cmd))
		}
		return cmd.Err()
	}
}

func (e explainer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Err() != nil {
				cmd.SetErr(e.explain(cmd.Err(), cmd))
			}
		}
		if err == nil || len(cmds) == 0 {
			return err
		}
		// EXECABORT means that Redis had refused a command before EXEC. The command has the reason.
		cause := slices.IndexFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil && !redis.HasErrorPrefix(cmd.Err(), "EXECABORT") })
		if redis.HasErrorPrefix(err, "EXECABORT") && cause >= 0 {
			return cmds[cause].Err()
		}
		return e.explain(err, cmds[0])
	}
}

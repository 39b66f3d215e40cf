package tasks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/redact"
)

// HTTPHandler runs http:request tasks. Its zero value is ready to use, and
// careful: it connects to public addresses alone, through no proxy, gives no
// secret out and writes no file. What it may do beyond that is for whoever runs
// the worker to say, not for payloads. It must not be copied, nor its fields
// changed, after its first task. It is safe for concurrent use, and one should run
// all calls of a process: it keeps connections open from call to call.
//
// Every answer is kept as the task's result, an HTTPResult, whatever its
// status: that of the last attempt stays. What becomes of the job:
//
//   - The status is expected: done.
//   - A malformed payload, or an address that is not allowed: archived at once,
//     with the reason.
//   - Another status, 101 always: a *StatusError. A 4xx is archived at once, because the
//     same call would only be refused again; but 408, 425 and 429, and any
//     answer that says when to come back, are retried, as are 5xx and all
//     others. A redirect that is not followed is archived too.
//   - A redirect, where the call asks for RedirectsRequeue: a *RedirectError,
//     and the job is put back at the next URL, or archived without PutBackAs.
//   - A body that is longer than asked for: a *BodyError, archived at once.
//   - No answer, a broken one, or none in time: a *NetworkError, retried.
//   - No secret, or no room for the body on disk: retried.
//
// A call can be made more than once, as any asynq job can run more than once.
type HTTPHandler struct {
	// AllowPrivate lists networks that may be called although they are not
	// public: loopback, link-local, the ranges of RFC 1918 and the like. What
	// counts is the address that is connected to, whatever its name. Through a
	// proxy that is the proxy's.
	AllowPrivate []netip.Prefix
	// Secrets lists what payloads may refer to as ${env:NAME} and
	// ${file:/path}, in the URL's path and query and in the values of headers:
	// "env:API_TOKEN", "file:/run/secrets/*", as path.Match has it. Whoever can
	// enqueue jobs can send these to any host.
	Secrets []string
	// SecretNames are names of further headers whose values are secrets, where * stands
	// for any text, beside those such as X-Api-Key that say so themselves. A secret stays behind when
	// a redirect leads to another host or port.
	SecretNames []string
	// RedirectBodies lists the hosts that may get a call's body when a redirect with 307
	// or 308 leads from another host or port to them: "example.com" is that host,
	// "*.example.com" all below it. A redirect that would take a body elsewhere is not
	// followed.
	RedirectBodies []string
	// SaveDir is the folder below which payloads may save bodies. Empty means
	// that they may not.
	SaveDir string
	// MaxSave is how many bytes a saved body may have. The zero value means
	// DefaultMaxSave.
	MaxSave int64
	// TLS is for https: own roots, a client's certificate, a lowest version.
	// Nil means Go's defaults.
	TLS *tls.Config
	// Proxy chooses a proxy for a request. Nil means none; the environment's
	// is http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
	// Transport makes the calls instead of the handler's own, to which
	// AllowPrivate, TLS and Proxy belong.
	Transport http.RoundTripper
	// PutBackAs makes the error that puts a job back with another payload:
	// scheduler.PutBackAs where that package runs the job. Nil means that a
	// redirected job which asks for RedirectsRequeue is archived.
	PutBackAs func(payload []byte) error

	once     sync.Once
	shared   http.RoundTripper                        // made once: see transport
	resolver *net.Resolver                            // nil means the machine's
	create   func(*os.Root, string) (saveFile, error) // nil means createFile
}

// saveFile is what of an *os.File is used. Tests have one whose disk is full.
type saveFile interface {
	io.WriteCloser
	Sync() error
}

// answer is one answer to one request, of which the header is there. Whoever has it
// closes its body, by read or drop. It knows the call twice: as it may be shown, and
// as it was made.
type answer struct {
	Answer
	call    HTTPRequest // as the payload has it
	secrets secrets
	url     *url.URL // that was called, with its secrets
	resp    *http.Response
	at      time.Time // when the header was there
}

// transport is the handler's one transport, which keeps connections open from
// call to call. It is used without an http.Client, which would follow redirects
// and say its URLs in errors, secrets included. It is made with the first call, so
// that the zero value of the handler is of use.
//
// It is for a worker, which calls few hosts from many goroutines: Go
// keeps 2 idle connections to a host, so that most calls would open a new one,
// and reads up to 10 MB of headers. Nothing is taken from the environment: a
// proxy there would hide from the guard where calls go. Go unpacks gzip here, so
// that every bound on bodies is one on what they unpack to. A call has no timeout
// here: its context has, which goes on while the body is read.
func (h *HTTPHandler) transport() http.RoundTripper {
	h.once.Do(func() {
		if h.shared = h.Transport; h.shared != nil {
			return
		}
		// The guard is asked for each address that a name has, after it was looked up.
		dialer := &net.Dialer{Timeout: 30 * time.Second, Control: h.control, Resolver: h.resolver}
		h.shared = &http.Transport{
			DialContext:            dialer.DialContext,
			Proxy:                  h.Proxy,
			TLSClientConfig:        h.TLS.Clone(),
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true, // which setting the two above turns off
			ExpectContinueTimeout:  time.Second,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConns:           512,
			MaxIdleConnsPerHost:    64,
			MaxResponseHeaderBytes: 256 << 10, // of which a result keeps what was asked for
		}
	})
	return h.shared
}

// AddressError refuses to connect to an address that is not public. It is a
// worker's guard against payloads, links and name servers that lead it into
// the network it stands in. It comes wrapped with asynq.SkipRetry.
type AddressError struct {
	// Address is the one that a host's name stood for, or that a URL had itself.
	Address netip.Addr
}

// Error says what is refused and what would allow it in a worker's config. In a program
// HTTPHandler.AllowPrivate would.
func (e *AddressError) Error() string {
	return fmt.Sprintf("address %s is not public: want http: {allow_private: [%s]} in the worker's config if jobs may call it",
		e.Address, netip.PrefixFrom(e.Address, e.Address.BitLen()))
}

// reserved lists the networks that are not the public internet, as IANA's
// registries of special-purpose addresses have them, as far as netip's own
// predicates leave them out, and what a cloud answers its own machines at. Of IPv6 only 2000::/3 is given out at all.
//
//   - https://www.iana.org/assignments/iana-ipv4-special-registry
//   - https://www.iana.org/assignments/iana-ipv6-special-registry
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // shared by carriers; some clouds keep their metadata there
	netip.MustParsePrefix("168.63.129.16/32"), // the metadata of Azure's machines
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), // Teredo among them, which holds an IPv4 address
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("3fff::/20"),
}

var (
	unicast6  = netip.MustParsePrefix("2000::/3")
	nat64     = netip.MustParsePrefix("64:ff9b::/96") // an IPv4 address in its last four bytes
	sixToFour = netip.MustParsePrefix("2002::/16")    // an IPv4 address after its first two
)

// public reports whether the address is one of the public internet. One that
// holds an IPv4 address is what that is: a gateway would lead from there to it.
func public(a netip.Addr) bool {
	a = canonical.Address(a)
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return public(netip.AddrFrom4([4]byte(b[12:16])))
	case sixToFour.Contains(a):
		return public(netip.AddrFrom4([4]byte(b[2:6])))
	case a.Is6() && !unicast6.Contains(a):
		return false
	}
	return a.IsGlobalUnicast() && !a.IsPrivate() && !anyContains(reserved, a)
}

// anyContains reports whether an address lies in one of the networks. Addresses are
// unmapped before: a network of IPv4 contains no ::ffff:10.0.0.1.
func anyContains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// control is a net.Dialer's: it lets connections to public addresses through, and to those
// that are allowed. To look at the URL would not do: names lead anywhere, and redirects and
// proxies elsewhere. It sees the very address that is about to be
// connected to, so that a name which leads elsewhere by the time it is looked
// up again cannot slip by. Where a name has several addresses, each is asked for
// itself, and a public one among them may be called.
func (h *HTTPHandler) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: want an IP address and a port: %w", address, err)
	}
	if a := canonical.Address(to.Addr()); !h.allows(a) {
		return &AddressError{Address: a}
	}
	return nil
}

// allows reports whether the handler may call an address.
func (h *HTTPHandler) allows(a netip.Addr) bool { return public(a) || anyContains(h.AllowPrivate, a) }

// endingBody is an answer's body that is closed when the context of its call ends. Most
// transports see to that; that every call ends in its time must not depend on it.
type endingBody struct {
	io.ReadCloser
	ctx  context.Context
	keep func() bool // takes back that the end of the context closes it
}

func endsWith(ctx context.Context, body io.ReadCloser) io.ReadCloser {
	return &endingBody{body, ctx, context.AfterFunc(ctx, func() { _ = body.Close() })}
}

// Read tells why the context has ended where that has broken off the body: that it was
// closed meanwhile is what follows from it.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if cause := context.Cause(b.ctx); cause != nil && err != nil && !errors.Is(err, io.EOF) {
		err = cause
	}
	return n, err
}

func (b *endingBody) Close() error {
	b.keep()
	return b.ReadCloser.Close()
}

// reveal is the call with its secrets in it, and the secrets. It exists from
// just before the request is sent, and must not be shown to anybody. Where a secret
// cannot be had the error names all that are missing, and nothing is sent. Values
// are read anew for each request, so a new one counts at once.
func (h *HTTPHandler) reveal(call HTTPRequest) (HTTPRequest, secrets, error) {
	var found secrets
	var failed error
	fill := func(text string, escape func(string) string) string {
		return reference.ReplaceAllStringFunc(text, func(ref string) string {
			value, err := h.secret(reference.FindStringSubmatch(ref)[1])
			if err != nil {
				failed = errors.Join(failed, err)
			}
			// The other side may repeat it escaped or not.
			found = append(found, secret{value, ref}, secret{escape(value), ref})
			return escape(value)
		})
	}
	open := call
	open.URL = fill(call.URL, escapeURL)
	open.Headers = make(map[string]string, len(call.Headers))
	for name, value := range call.Headers {
		open.Headers[name] = fill(value, func(s string) string { return s })
	}
	if failed != nil {
		return call, nil, failed
	}
	// What is written out in the query, or in a header with a secret's name, should be a
	// reference, and is hidden as one.
	values := redact.Values(call.URL)
	for name, value := range call.Headers {
		if redact.Named(name, h.SecretNames...) && !reference.MatchString(value) {
			values = append(values, value)
		}
	}
	for _, value := range values {
		if len(value) >= minSecret {
			found = append(found, secret{value, redact.Hidden})
		}
	}
	found.sort()
	return open, found, nil
}

// secret is the value of "env:NAME" or "file:PATH". What is wrong with it is
// the worker's fault, not the payload's, so the job may be tried again.
func (h *HTTPHandler) secret(name string) (string, error) {
	allowed := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
	if !slices.ContainsFunc(h.Secrets, allowed) {
		return "", fmt.Errorf("secret %s: this worker does not give it out to jobs", name)
	}
	return lookup(name)
}

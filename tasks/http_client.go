package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/hostname"
)

// transport is the handler's one transport, which keeps connections open from
// call to call. It is used without an http.Client, which would follow redirects
// and say its URLs in errors, secrets included. It is made with the first call, so
// that the zero value of the handler is of use.
func (h *HTTPHandler) transport() http.RoundTripper {
	h.once.Do(func() {
		h.shared = h.Transport
		if h.shared == nil {
			h.shared = h.newTransport()
		}
	})
	return h.shared
}

// newTransport is for a worker, which calls few hosts from many goroutines: Go
// keeps 2 idle connections to a host, so that most calls would open a new one,
// and reads up to 10 MB of headers. Nothing is taken from the environment: a
// proxy there would hide from the guard where calls go. Go unpacks gzip here, so
// that every bound on bodies is one on what they unpack to. A call has no timeout
// here: its context has, which goes on while the body is read.
func (h *HTTPHandler) newTransport() *http.Transport {
	// The guard is asked for each address that a name has, after it was looked up.
	dialer := &net.Dialer{
		Timeout:  30 * time.Second,
		Control:  h.control,
		Resolver: h.resolver,
	}
	return &http.Transport{
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
}

// AddressError refuses to connect to an address that is not public. It is a
// worker's guard against payloads, links and name servers that lead it into
// the network it stands in. It comes wrapped with asynq.SkipRetry.
type AddressError struct {
	// Address is the one that a host's name stood for, or that a URL had itself.
	Address netip.Addr
}

// Error says what is refused and what would allow it: in a config of headgate's
// and in a program.
func (e *AddressError) Error() string {
	return fmt.Sprintf("address %s is not public: want http: {allow_private: [%s]} in the worker's config (HTTPHandler.AllowPrivate) if jobs may call it",
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
	a = hostname.Address(a)
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
	a := hostname.Address(to.Addr())
	if public(a) || anyContains(h.AllowPrivate, a) {
		return nil
	}
	return &AddressError{Address: a}
}

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

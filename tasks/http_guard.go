package tasks

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"syscall"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/canonical"
)

// AddressError is the error of a call to an address that is not public. Such calls are forbidden
// because payloads, links and name servers could lead into the worker's network.
type AddressError struct {
	Address netip.Addr // the address that the call would have connected to
}

// Error names the address and the config that would allow it.
func (e *AddressError) Error() string {
	return fmt.Sprintf("address %s is not public: want http: {allow_private: [%s]} in the worker's config if jobs may call it",
		e.Address, netip.PrefixFrom(e.Address, e.Address.BitLen()))
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// reserved lists the networks that are not public by IANA's registries, except those that methods
// of netip.Addr recognize. 168.63.129.16 is a metadata service of Azure. Addresses of Teredo (in
// 2001::/23) and 6to4 (2002::/16) contain an IPv4 address, which can be private.
var reserved = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "168.63.129.16/32", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
	"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	unicast6 = netip.MustParsePrefix("2000::/3")
	nat64    = netip.MustParsePrefix("64:ff9b::/96")
)

// isPublic reports whether the address is public. Of a NAT64 address, it checks the IPv4 address in
// the last four bytes.
func isPublic(a netip.Addr) bool {
	a = canonical.Address(a)
	if nat64.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return (a.Is4() || unicast6.Contains(a)) && a.IsGlobalUnicast() && !a.IsPrivate() && !anyContains(reserved, a)
}

func anyContains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// control is the Control of a net.Dialer. It checks the address of each connection, because a name
// can resolve to another address each time.
func (h *HTTPHandler) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: want an IP address and a port: %w", address, err)
	}
	return h.check(to.Addr())
}

// check returns an *AddressError if the handler may not call the address.
func (h *HTTPHandler) check(a netip.Addr) error {
	a = canonical.Address(a)
	if isPublic(a) || anyContains(h.AllowPrivate, a) {
		return nil
	}
	return &AddressError{Address: a}
}

// checkAddress returns an error if a URL has an address that the handler may not call. It returns
// nil if the URL's host is a name, or if the handler has a Proxy or a Transport.
func (h *HTTPHandler) checkAddress(text string) error {
	u, err := url.Parse(text)
	if err != nil || h.Proxy != nil || h.Transport != nil {
		return nil
	}
	a, err := netip.ParseAddr(canonical.HostOf(u.String()))
	if err != nil {
		return nil
	}
	if err := h.check(a); err != nil {
		return unable(fmt.Errorf("%s: %w: %w", text, err, asynq.SkipRetry))
	}
	return nil
}

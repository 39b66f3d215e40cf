// Package canonical has one form for every host and every percent-encoding. A limit that counts by
// hosts must not count one host under two names, or each spelling would get the limit's permits
// again. In a crawl, two texts for one page are one URL.
package canonical

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/idna"
)

// Host returns the canonical form of a URL's host name: in lower case, without dots at its end, and
// in ASCII as net/http dials it (UTS 46). For an address, in any notation that a resolver accepts,
// Host returns the form of Address, without brackets. Host is idempotent. It returns an error only
// if a name with non-ASCII characters is invalid.
func Host(name string) (string, error) {
	if strings.Contains(name, ":") {
		if a, err := netip.ParseAddr(name); err == nil {
			return Address(a).String(), nil
		}
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		ascii, err := idna.Lookup.ToASCII(name)
		if err != nil {
			return "", fmt.Errorf("%.100q is not the name of a host", name)
		}
		name = ascii
	}
	name = strings.TrimRight(strings.ToLower(name), ".")
	// Browsers and C libraries read one to four decimal, octal or hexadecimal numbers as an address.
	// The parser of URLs also reads numbers with a sign, which no resolver does.
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last != "" && last[0] >= '0' && last[0] <= '9' && !strings.ContainsAny(name, "+-_") {
		if u, err := whatwg.Parse("http://" + name); err == nil && u.IsIPv4() {
			return u.Hostname(), nil
		}
	}
	return name, nil
}

// HostOf returns the canonical host of a URL, without its port, or "" if the text is no URL.
func HostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	host, _ := Host(u.Hostname())
	return host
}

// Address returns the canonical form of an address: IPv4 if it is mapped to IPv6, and without a zone.
func Address(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

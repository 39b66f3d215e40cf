// Package canonical has one form for every host and every percent-encoding. A limit that counts by
// hosts must not count one host under two names, or each spelling would get the limit's permits
// again. In a crawl, two texts for one page are one URL.
package canonical

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Host returns the canonical form of a URL's host name: in lower case, without dots at its end, and in
// ASCII as net/http dials it (UTS 46). An address, in any notation that a resolver accepts, is in the
// form of Address and without brackets. The form of a form is itself. The error is that of a name
// with non-ASCII letters that is invalid.
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
	if a, ok := numeric(name); ok {
		return a.String(), nil
	}
	return name, nil
}

// Address returns the canonical form of an address: IPv4 if it is mapped to IPv6, and without a zone.
func Address(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// numeric reads an IPv4 address as browsers and C libraries do: up to four numbers, each decimal,
// octal from 0 or hexadecimal from 0x, of which the last fills the rest.
func numeric(name string) (netip.Addr, bool) {
	parts := strings.Split(name, ".")
	last := parts[len(parts)-1]
	if len(parts) > 4 || last == "" || last[0] < '0' || last[0] > '9' {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, ok := number(part, bits)
		if !ok {
			return netip.Addr{}, false
		}
		sum = sum<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

// number reads one number with so many bits. "0x" alone is zero in browsers.
func number(part string, bits int) (uint64, bool) {
	base := 10
	if hex, ok := strings.CutPrefix(part, "0x"); ok {
		part, base = "0"+hex, 16
	} else if len(part) > 1 && part[0] == '0' {
		base = 8
	}
	if strings.ContainsAny(part, "+-_") {
		return 0, false
	}
	n, err := strconv.ParseUint(part, base, bits)
	return n, err == nil
}

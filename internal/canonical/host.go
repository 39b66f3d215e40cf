// Package canonical knows the one form of a host and of percent-encoding. A limit that counts
// by hosts must not count one of them under two names, or each spelling would get the limit's
// permits anew; and of a crawl two texts that mean the same page are one.
package canonical

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Host is the one form of a URL's host name: in lower case, without dots at its end, and in
// ASCII as net/http has it when it dials (UTS 46: full-width letters and dots, zero-width
// characters, umlauts as xn--). An address, in whatever numbers a resolver may take it, is
// as Address has it and without brackets. What it gives for its own result is the same.
//
// The error is that of a name in other letters than ASCII which is none.
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

// Address is the one form of an address: an IPv4 address that is written as one of IPv6
// is itself, and a zone does not matter.
func Address(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// numeric reads an IPv4 address as browsers and C libraries do: up to four numbers, each
// decimal, octal from 0 or hexadecimal from 0x, of which the last fills what is left.
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

// number reads one number of so many bits. "0x" alone is zero to browsers.
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

// Package canonical turns all spellings of a host or of a percent-encoding into one form. A limit
// must count each host once, and a crawl each URL once, whatever their spelling.
package canonical

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/idna"
)

// Host returns the canonical form of a URL's host name: in lower case, without dots at its end, and
// in ASCII as net/http dials it (UTS 46). If name is an IP address in any notation that a resolver
// accepts, Host returns the text of Address. An IPv6 address must have no brackets. Host is
// idempotent. It returns an error only if a name with non-ASCII characters is invalid.
func Host(name string) (string, error) {
	if a, err := netip.ParseAddr(name); err == nil {
		return Address(a).String(), nil
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
	// The whatwg parser also reads numbers with signs and underscores, which no resolver does.
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last != "" && last[0] >= '0' && last[0] <= '9' && !strings.ContainsAny(name, "+-_") {
		if u, err := whatwg.Parse("http://" + name); err == nil && u.IsIPv4() {
			return u.Hostname(), nil
		}
	}
	return name, nil
}

// HostOf returns the canonical host of a URL, without its port. It returns "" if the text is no URL,
// has no host, or has an invalid host.
func HostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	host, _ := Host(u.Hostname())
	return host
}

// Address returns an address without its zone. An IPv4 address that is mapped to IPv6 becomes plain
// IPv4.
func Address(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// PercentEncoding returns the canonical form of a text's percent-encoding. It decodes the encoding of each
// byte for which plain reports true, and writes other encodings with capital digits. It encodes each
// byte for which encode reports true, and each percent sign that begins no encoding.
func PercentEncoding(text string, plain, encode func(c byte) bool) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	done := 0 // bytes of text whose canonical form is in b
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '%' && !encode(c) {
			continue
		}
		b.WriteString(text[done:i])
		encoded := []byte(text[i:min(i+3, len(text))])
		if n, err := hex.Decode(encoded, encoded[1:]); c == '%' && err == nil && n == 1 {
			c = encoded[0]
			i += 2
			if plain(c) {
				b.WriteByte(c)
				done = i + 1
				continue
			}
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		done = i + 1
	}
	b.WriteString(text[done:])
	return b.String()
}

// IsAlphanumeric reports whether a byte is an ASCII letter or digit. Letters and digits mean the same
// with and without percent-encoding.
func IsAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

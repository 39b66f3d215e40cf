package canonical

import (
	"fmt"
	"net/url"
	"strings"
)

// Percent returns the canonical form of a text's percent-encoding: plain characters are decoded, other
// encodings have capital digits, and characters that have to be encoded are, including a percent
// sign that begins no encoding.
func Percent(text string, plain, encode func(c byte) bool) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c != '%' && !encode(c) {
			b.WriteByte(c)
			continue
		}
		if decoded, err := url.PathUnescape(text[i:min(i+3, len(text))]); c == '%' && err == nil {
			c = decoded[0]
			i += 2
			if plain(c) {
				b.WriteByte(c)
				continue
			}
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

// Alphanumeric reports whether a character is an ASCII letter or digit. These mean the same with and
// without percent-encoding.
func Alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

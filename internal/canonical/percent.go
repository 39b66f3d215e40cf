package canonical

import (
	"fmt"
	"net/url"
	"strings"
)

// Percent is the one form of a text's percent-encoding: what is plain is decoded, and all
// other encoding has capital digits. What has to be encoded is, and so is a percent sign that
// stands for itself, which would begin what comes decoded after it.
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

// Alphanumeric reports whether a character is one of those that always mean the same encoded
// and not.
func Alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

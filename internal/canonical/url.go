package canonical

import "net/url"

// HostOf returns the canonical host of a URL, without its port, or "" if the text is no URL.
func HostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	host, _ := Host(u.Hostname())
	return host
}

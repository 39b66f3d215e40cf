package tasks

import (
	"net"
	"net/http"
	"time"
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
		Control:  guard(h.AllowPrivate).control,
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

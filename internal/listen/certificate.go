package listen

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
)

// Certificate is what a listener shows by TLS. It is read anew for each connection,
// since certificates are renewed more often than workers are stopped.
type Certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	last   *tls.Certificate
	broken string // why the files could not be read; told once
}

// NewCertificate reads the page's certificate from its files, in PEM.
func NewCertificate(cert, key string, log *slog.Logger) (*Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the page's certificate %s and key %s: %w", cert, key, err)
	}
	return &Certificate{cert: cert, key: key, log: log, last: &pair}, nil
}

// Over is a listener that speaks TLS with the certificate. It has no HTTP/2: what bounds
// a connection bounds what one client can ask for.
func (c *Certificate) Over(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{GetCertificate: c.get, NextProtos: []string{"http/1.1"}})
}

// get is the certificate of the files, or the last one while they cannot be read, as
// between the writing of the one and of the other.
func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.last, c.broken = &pair, ""
	} else if c.broken != err.Error() {
		c.broken = err.Error()
		c.log.Warn("the page's certificate cannot be read: the last one is shown", "cert", c.cert, "key", c.key, "error", err)
	}
	return c.last, nil
}

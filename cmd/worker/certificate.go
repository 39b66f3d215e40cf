package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"

	"github.com/headgate/headgate/internal/config"
)

// certificate is what the listener shows by TLS. It is read anew for each connection,
// since certificates are renewed more often than workers are stopped.
type certificate struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	last   *tls.Certificate
	broken string // why the files could not be read; told once
}

// newCertificate reads the page's certificate. Without one it is nil.
func newCertificate(p config.Page, log *slog.Logger) (*certificate, error) {
	if p.TLSCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(p.TLSCert, p.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("the page's certificate %s and key %s: %w", p.TLSCert, p.TLSKey, err)
	}
	return &certificate{cert: p.TLSCert, key: p.TLSKey, log: log, last: &pair}, nil
}

// config has no HTTP/2: what bounds a connection bounds what one client can ask for.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, NextProtos: []string{"http/1.1"}}
}

// get is the certificate of the files, or the last one while they cannot be read, as
// between the writing of the one and of the other.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
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

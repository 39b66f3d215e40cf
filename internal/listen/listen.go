// Package listen answers by HTTP clients that may be slow or mean.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/headgate/headgate/internal/config"
)

const (
	// requestTimeout bounds how long a client may take to say what it wants, and
	// idleTimeout for how long it may keep a connection for later.
	requestTimeout = 5 * time.Second
	// answerTimeout bounds how long it may take to have its answer and read it. Streams
	// of the page set their own for each event.
	answerTimeout = 30 * time.Second
	idleTimeout   = time.Minute
)

// At takes an address, such as :9090, which is a port of this machine only. Its
// connections are bounded. It is nil where the text is empty.
func At(ctx context.Context, text string) (net.Listener, error) {
	address, err := config.ListenAddress(text)
	if err != nil {
		return nil, fmt.Errorf("--listen %w", err)
	}
	if address == "" {
		return nil, nil
	}
	var network net.ListenConfig
	taken, err := network.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--listen %s: another program has that port: want a free one, such as :0 for any", text)
	}
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", text, err)
	}
	return &bounded{Listener: taken}, nil
}

// Server is for clients that may be slow or mean.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
	}
}

// OfThisMachine reports whether only this machine reaches an address, HOST:PORT.
func OfThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

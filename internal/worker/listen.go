package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
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
	// closeTimeout is how long requests may take to end when a server does.
	closeTimeout = 2 * time.Second
)

// Listen takes an address, such as :9090, which is a port of this machine only. It is nil
// where the text is empty.
func Listen(ctx context.Context, text string) (net.Listener, error) {
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
	return taken, nil
}

// HTTPServer is for clients that may be slow or mean. Its connections are bounded.
func HTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10, ConnState: new(bound).see,
	}
}

// maxConns bounds the connections of a server. All who may look at the page have room,
// and where a process has a thousand descriptors the jobs have some.
const maxConns = 600

// bound is a bound on the connections of a server: one more ends the oldest. So clients
// that ask nothing, or read nothing, hold no more than that, and who comes is answered, such
// as a health check. Those who look at the page come again by themselves.
type bound struct {
	mu   sync.Mutex
	open []net.Conn // the oldest in front
}

func (b *bound) see(conn net.Conn, state http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(b.open) >= maxConns {
			drop(b.open[0])
			b.open = slices.Delete(b.open, 0, 1)
		}
		b.open = append(b.open, conn)
	case http.StateClosed:
		b.open = slices.DeleteFunc(b.open, func(c net.Conn) bool { return c == conn })
	}
}

// drop ends a connection for its client, with what that has yet to read, which the system
// would keep for minutes. Whoever serves it meets an error, and closes it.
func drop(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// CloseServer ends a server once requests that have begun are answered.
func CloseServer(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// OfThisMachine reports whether only this machine reaches an address, HOST:PORT.
func OfThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// errorLog is for what net/http has to say. A handshake that fails is for those who debug:
// any client can have it fail, and at a warning for each would fill the log's disk.
func errorLog(to *slog.Logger) *log.Logger { return log.New(complaints{to}, "", 0) }

type complaints struct{ log *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	text, level := strings.TrimSuffix(string(line), "\n"), slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error") {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, text)
	return len(line), nil
}

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

// over is a listener that speaks TLS with the certificate. It has no HTTP/2: what bounds
// a connection bounds what one client can ask for.
func (c *Certificate) over(l net.Listener) net.Listener {
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

// Package listen answers by HTTP clients that may be slow or mean.
package listen

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
	// AnswerTimeout bounds how long it may take to have its answer and read it. Streams
	// of the page set their own for each event.
	AnswerTimeout = 30 * time.Second
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
		Handler: h, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: AnswerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: 16 << 10,
	}
}

// OfThisMachine reports whether only this machine reaches an address, HOST:PORT.
func OfThisMachine(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// MaxConns bounds the connections of a listener. All who may look at the page have room,
// and where a process has a thousand descriptors the jobs have some.
const MaxConns = 600

// bounded is a listener with a bound on its connections: one more ends the oldest. So
// clients that ask nothing, or read nothing, hold no more than that, and who comes is
// answered, such as a health check. Those who look at the page come again by themselves.
type bounded struct {
	net.Listener
	mu   sync.Mutex
	open []*boundedConn // the oldest in front
}

type boundedConn struct {
	net.Conn
	of *bounded
}

func (l *bounded) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= MaxConns {
		l.open[0].drop()
		l.open = slices.Delete(l.open, 0, 1)
	}
	c := &boundedConn{conn, l}
	l.open = append(l.open, c)
	return c, nil
}

// drop ends a connection for its client, with what that has yet to read, which the system
// would keep for minutes. Whoever serves it meets an error, and closes it.
func (c *boundedConn) drop() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Conn.Close()
}

func (c *boundedConn) Close() error {
	c.of.mu.Lock()
	if i := slices.Index(c.of.open, c); i >= 0 { // -1 is of one that was dropped
		c.of.open = slices.Delete(c.of.open, i, i+1)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// ErrorLog is for what net/http has to say. A handshake that fails is for those who debug:
// any client can have it fail, and at a warning for each would fill the log's disk.
func ErrorLog(to *slog.Logger) *log.Logger { return log.New(complaints{to}, "", 0) }

type complaints struct{ log *slog.Logger }

func (c complaints) Write(line []byte) (int, error) {
	text, level := strings.TrimSuffix(string(line), "\n"), slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error") {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, text)
	return len(line), nil
}

// closeTimeout is how long requests may take to end when a server does.
const closeTimeout = 2 * time.Second

// Close ends a server once requests that have begun are answered.
func Close(server *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
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

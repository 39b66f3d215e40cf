package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrNotInstalled says that no redis-server is on the PATH.
var ErrNotInstalled = errors.New("redis-server is not installed: run make test")

// A Server is one redis-server process on a loopback port. Its methods are not
// for use by several goroutines at once.
type Server struct {
	port int
	dir  string
	args []string
	tls  *tls.Config

	user, password string // of Client, on a server with users of its own
	certificates   Certificates
	under          []string // the program, with arguments, that runs redis-server

	process *exec.Cmd
	exited  chan struct{} // closed once process has ended and been waited for
}

// Start starts a redis-server that keeps nothing on disk and waits until it
// answers. The args are further redis-server arguments and win over its own:
// "--appendonly", "yes" keeps the data over [Server.Stop] and
// [Server.Restart]. The caller must Close it.
func Start(args ...string) (*Server, error) { return StartUnder(nil, args...) }

// StartUnder is Start for a server that another program runs, such as valgrind: the
// program and its arguments come before redis-server and its own.
func StartUnder(program []string, args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, args: args, under: program}
	return s, s.start()
}

// Pid is the process that runs the server, or 0 while it is stopped.
func (s *Server) Pid() int {
	if s.process == nil {
		return 0
	}
	return s.process.Process.Pid
}

// Dir is the server's folder, which Close removes.
func (s *Server) Dir() string { return s.dir }

// start starts the server, which owns its folder from now on. Another process may take
// the free port before redis-server does, so it tries a few.
func (s *Server) start() (err error) {
	for range 5 {
		if s.port, err = freePort(); err == nil {
			err = s.Restart()
		}
		if !errors.Is(err, errExited) {
			break
		}
	}
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	return err
}

// freePort finds a loopback port below the range that the system gives to
// outgoing connections, so that nobody takes it while the server is stopped,
// and low enough for the cluster bus at port + 10000.
func freePort() (int, error) {
	var err error
	for range 50 {
		port := 10000 + rand.IntN(12000)
		var listener net.Listener
		if listener, err = net.Listen("tcp", address(port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, fmt.Errorf("no free loopback port for redis-server: %w", err)
}

func address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

func (s *Server) portText() string { return strconv.Itoa(s.port) }

// Addr is the server's host and port.
func (s *Server) Addr() string { return address(s.port) }

// URL is the address in the form that redis.ParseURL takes: redis://, or
// rediss:// for a server with TLS.
func (s *Server) URL() string {
	if s.tls != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Certificates are what clients of a server with TLS need. Other servers have none.
func (s *Server) Certificates() Certificates { return s.certificates }

// Options are what a client of this server needs; the caller may add to them.
func (s *Server) Options() *redis.Options {
	return &redis.Options{
		Addr:                     s.Addr(),
		Username:                 s.user,
		Password:                 s.password,
		TLSConfig:                s.tls,
		MaintNotificationsConfig: noNotifications(),
	}
}

// noNotifications keeps clients from asking for the maintenance news that only
// Redis's cloud sends, and for which go-redis looks host names up.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Client connects to the server. The caller must close the client.
func (s *Server) Client() *redis.Client { return redis.NewClient(s.Options()) }

// Stop kills the process, as a crash would; clients see their connections
// break. A stopped server may be stopped again.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	err := s.process.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.exited
	s.process = nil
	return err
}

// Restart starts a stopped server again, on the same port.
func (s *Server) Restart() error {
	if s.process != nil {
		return fmt.Errorf("redis-server at %s already runs", s.Addr())
	}
	if err := s.launch(); err != nil {
		return err
	}
	if err := s.ready(); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// Close stops the server and removes its folder.
func (s *Server) Close() error {
	return errors.Join(s.Stop(), os.RemoveAll(s.dir))
}

// ready waits until the process that answers on the port is the server's own.
func (s *Server) ready() error {
	rdb := s.Client()
	defer rdb.Close()
	pid := strconv.Itoa(s.process.Process.Pid)
	return poll("redis-server at "+s.Addr(), func(ctx context.Context) error {
		select {
		case <-s.exited:
			return fmt.Errorf("%w: %s", errExited, s.lastLog())
		default:
		}
		// Redis's client dials for half a second, and logs it, before it fails.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
		if err != nil {
			return err
		}
		conn.Close()
		text, err := rdb.Info(ctx, "server", "persistence").Result()
		if err != nil {
			return err
		}
		if strings.Contains(text, "\nloading:1") { // a sentinel has no such line
			return errors.New("it still loads its data")
		}
		return expect(text, "process_id", pid)
	})
}

// errExited says that redis-server ended before it answered, most likely
// because somebody else has the port.
var errExited = errors.New("redis-server has exited")

// launch starts the process, without waiting until it answers.
func (s *Server) launch() error {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return ErrNotInstalled
	}
	if err := os.WriteFile(s.configFile(), nil, 0o600); err != nil {
		return err
	}
	log, err := os.Create(s.logFile())
	if err != nil {
		return err
	}
	defer log.Close()

	command := append(append(slices.Clone(s.under), binary), s.arguments()...)
	process := exec.Command(command[0], command[1:]...)
	process.Dir = s.dir
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = dieWithParent()
	if err := process.Start(); err != nil {
		return fmt.Errorf("start redis-server: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = process.Wait() // It was killed: its exit status says only that.
	}()
	s.process, s.exited = process, exited
	return nil
}

// arguments are redis-server's. It wants the configuration file first, which is
// empty but which a sentinel insists on to keep its state in; the caller's
// arguments come last and so win.
func (s *Server) arguments() []string {
	args := []string{s.configFile(), "--bind", "127.0.0.1", "--dir", s.dir}
	if s.tls != nil {
		args = append(args, "--port", "0", "--tls-port", s.portText())
	} else {
		args = append(args, "--port", s.portText())
	}
	return append(append(args, "--save", "", "--appendonly", "no"), s.args...)
}

func (s *Server) configFile() string { return filepath.Join(s.dir, "redis.conf") }

func (s *Server) logFile() string { return filepath.Join(s.dir, "redis.log") }

func (s *Server) lastLog() string {
	log, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-500):])
}

// How often a server is asked whether it is ready: for some 20 s in all.
const (
	pollTries = 4000
	pollPause = 5 * time.Millisecond
)

// poll repeats check until it succeeds. A process that has exited ends it at
// once; otherwise the error is the last one that check gave.
func poll(what string, check func(context.Context) error) error {
	var err error
	for range pollTries {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = check(ctx)
		cancel()
		if err == nil || errors.Is(err, errExited) {
			break
		}
		time.Sleep(pollPause)
	}
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", what, err)
	}
	return nil
}

// waitFor waits until a field of the server's INFO has the wanted value.
func (s *Server) waitFor(section, name, want string) error {
	rdb := s.Client()
	defer rdb.Close()
	return poll("redis-server at "+s.Addr(), func(ctx context.Context) error {
		text, err := rdb.Info(ctx, section).Result()
		if err != nil {
			return err
		}
		return expect(text, name, want)
	})
}

// waitForCluster waits until the node knows so many nodes that serve all slots.
func (s *Server) waitForCluster(nodes int) error {
	rdb := s.Client()
	defer rdb.Close()
	return poll("cluster node at "+s.Addr(), func(ctx context.Context) error {
		text, err := rdb.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		return errors.Join(
			expect(text, "cluster_known_nodes", strconv.Itoa(nodes)),
			expect(text, "cluster_state", "ok"),
		)
	})
}

// expect is an error unless INFO's text has a line "name:want".
func expect(text, name, want string) error {
	for line := range strings.Lines(text) {
		if got, ok := strings.CutPrefix(line, name+":"); ok {
			if got = strings.TrimSpace(got); got != want {
				return fmt.Errorf("%s is %q, want %q", name, got, want)
			}
			return nil
		}
	}
	return fmt.Errorf("%s is missing in %q", name, text)
}

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

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// Server is a redis-server process on a loopback port. It is not safe for concurrent use.
type Server struct {
	port         int
	reserved     net.PacketConn // the UDP port of the same number
	dir          string
	args         []string // further arguments, which win over the server's own
	under        []string // a program with arguments that runs redis-server
	tls          *tls.Config
	certificates Certificates
	user         string // name and password of Client's user; empty for Redis's default user

	process *exec.Cmd
	exited  chan struct{} // closed once process has ended
}

// Start starts a redis-server that keeps nothing on disk, and waits until it answers. args are
// further arguments for it. The caller must Close it.
func Start(args ...string) (*Server, error) { return StartUnder(nil, args...) }

// StartUnder is Start under another program, such as valgrind.
func StartUnder(program []string, args ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, args: args, under: program}
	return s, s.start()
}

// start starts the server. It tries several ports, because another program may take a port first.
func (s *Server) start() (err error) {
	for range 5 {
		if err = s.reservePort(); err == nil {
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

// reservePort chooses a free port. While the server is stopped, no other program takes the port: it is
// below the ports of outgoing connections, and the UDP socket of the same number keeps the servers of
// other tests away from it. The bus of a cluster node is at the port + 10000.
func (s *Server) reservePort() (err error) {
	for range 50 {
		s.releasePort()
		s.port = 10000 + rand.IntN(10000)
		if s.reserved, err = net.ListenPacket("udp", s.Addr()); err != nil {
			continue
		}
		var listener net.Listener
		if listener, err = net.Listen("tcp", s.Addr()); err == nil {
			return listener.Close()
		}
	}
	return fmt.Errorf("no free loopback port for redis-server: %w", err)
}

func (s *Server) releasePort() {
	if s.reserved != nil {
		_ = s.reserved.Close()
		s.reserved = nil
	}
}

// Pid returns the ID of the process, or 0 while it is stopped.
func (s *Server) Pid() int {
	if s.process == nil {
		return 0
	}
	return s.process.Process.Pid
}

// Dir returns the server's folder, which Close removes.
func (s *Server) Dir() string { return s.dir }

func (s *Server) portText() string { return strconv.Itoa(s.port) }

// Addr returns the host and port.
func (s *Server) Addr() string { return "127.0.0.1:" + s.portText() }

// URL returns the address for redis.ParseURL.
func (s *Server) URL() string {
	if s.tls != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Certificates returns the files for clients of a server with TLS.
func (s *Server) Certificates() Certificates { return s.certificates }

// Options returns new options for a client.
func (s *Server) Options() *redis.Options {
	return Patient(&redis.Options{
		Addr: s.Addr(), Username: s.user, Password: s.user, TLSConfig: s.tls, MaintNotificationsConfig: noNotifications(),
	})
}

// noNotifications keeps clients from asking for notifications of Redis Cloud, for which go-redis
// looks up host names.
func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// Client returns a new client, which the caller must close.
func (s *Server) Client() *redis.Client { return redis.NewClient(s.Options()) }

// do sends a command.
func (s *Server) do(args ...any) error {
	rdb := s.Client()
	defer rdb.Close()
	return rdb.Do(context.Background(), args...).Err()
}

// Flush deletes all keys.
func (s *Server) Flush() error { return s.do("flushall") }

// Stop kills the process, unless it is stopped.
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

// Restart starts a stopped server again, on the same port, and waits until it answers.
func (s *Server) Restart() error {
	if s.process != nil {
		return fmt.Errorf("redis-server at %s already runs", s.Addr())
	}
	if err := s.launch(); err != nil {
		return err
	}
	pid := strconv.Itoa(s.process.Process.Pid) // another server may have the port
	if err := s.waitForInfo(func(info string) error {
		if strings.Contains(info, "\nloading:1") { // a sentinel has no such line
			return errors.New("it loads its data")
		}
		return wantField(info, "process_id", pid)
	}, "server", "persistence"); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// Close stops the server and removes its folder.
func (s *Server) Close() error {
	defer s.releasePort()
	return errors.Join(s.Stop(), os.RemoveAll(s.dir))
}

// errExited is returned if redis-server ended before it answered, most likely because its port was
// taken.
var errExited = errors.New("redis-server has exited")

// launch starts the process.
func (s *Server) launch() error {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return errors.New("redis-server is not installed: run make test")
	}
	config := filepath.Join(s.dir, "redis.conf") // empty; a sentinel writes its state there
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "redis.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ports := []string{"--port", s.portText()}
	if s.tls != nil {
		ports = []string{"--port", "0", "--tls-port", s.portText()}
	}
	command := slices.Concat(s.under, []string{binary, config, "--bind", "127.0.0.1", "--dir", s.dir}, ports,
		[]string{"--save", "", "--appendonly", "no"}, s.args)
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
		_ = process.Wait()
	}()
	s.process, s.exited = process, exited
	return nil
}

// waitForInfo waits until check accepts sections of the server's INFO.
func (s *Server) waitForInfo(check func(info string) error, sections ...string) error {
	rdb := s.Client()
	defer rdb.Close()
	return poll("redis-server at "+s.Addr(), func(ctx context.Context) error {
		select {
		case <-s.exited:
			log, _ := os.ReadFile(filepath.Join(s.dir, "redis.log"))
			return fmt.Errorf("%w: %s", errExited, log[max(0, len(log)-500):])
		default:
		}
		// go-redis would dial for half a second, and log each failure.
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
		if err != nil {
			return err
		}
		conn.Close()
		info, err := rdb.Info(ctx, sections...).Result()
		if err != nil {
			return err
		}
		return check(info)
	})
}

// follow waits until the server is a replica that has all writes of its master so far.
func (s *Server) follow(master *Server) error {
	rdb := master.Client()
	defer rdb.Close()
	info, err := rdb.InfoMap(context.Background(), "replication").Result()
	if err != nil {
		return err
	}
	want, err := strconv.Atoi(info["Replication"]["master_repl_offset"])
	return errors.Join(err, s.waitForInfo(func(info string) error {
		_, after, _ := strings.Cut(info, "slave_repl_offset:")
		offset, _, _ := strings.Cut(after, "\r")
		if n, _ := strconv.Atoi(offset); n < want {
			return fmt.Errorf("it has %q of %d bytes", offset, want)
		}
		return wantField(info, "master_link_status", "up")
	}, "replication"))
}

// waitForRole waits until the server is a "master" or a "slave".
func (s *Server) waitForRole(role string) error {
	return s.waitForInfo(func(info string) error { return wantField(info, "role", role) }, "replication")
}

// poll repeats check until it succeeds or returns errExited.
func poll(what string, check func(context.Context) error) error {
	var err error
	proctest.Wait(func() bool {
		err = check(context.Background())
		return err == nil || errors.Is(err, errExited)
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", what, err)
	}
	return nil
}

// wantField returns an error unless the text of an INFO has a line "name:want".
func wantField(info, name, want string) error {
	for line := range strings.Lines(info) {
		if got, ok := strings.CutPrefix(line, name+":"); ok {
			if got = strings.TrimSpace(got); got != want {
				return fmt.Errorf("%s is %q, want %q", name, got, want)
			}
			return nil
		}
	}
	return fmt.Errorf("%s is missing in %q", name, info)
}

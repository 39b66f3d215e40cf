package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// A socket serves a miniredis to the user who runs it and to nobody else: at a Unix
// socket in a folder of mode 0700. miniredis itself would listen on a port, which every
// user of the machine can connect to, and what goes wrong in it ends the process.
type socket struct {
	path     string
	redis    *miniredis.Miniredis
	listener net.Listener
	aside    string // the folder of a socket that is not in the server's, or ""

	one sync.Mutex // held while a command runs: they run one at a time, as in Redis

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed time.Time // zero until it is
	served sync.WaitGroup
}

// maxPath is how long the path of a Unix socket can be on all systems that have them.
const maxPath = 100

func (f Folder) listen(m *miniredis.Miniredis) (*socket, error) {
	s := &socket{path: f.path("embedded.sock"), redis: m, conns: map[net.Conn]bool{}}
	var err error
	if s.path, err = filepath.Abs(s.path); err == nil && len(s.path) > maxPath {
		s.aside, err = os.MkdirTemp("", "headgate-")
		s.path = filepath.Join(s.aside, "embedded.sock")
	}
	if err != nil {
		return nil, err
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) { // what a crash left
		return nil, err
	}
	if s.listener, err = net.Listen("unix", s.path); err != nil {
		return nil, err
	}
	// By the time it closes the path can be that of another server.
	s.listener.(*net.UnixListener).SetUnlinkOnClose(false)
	s.served.Go(s.accept)
	return s, nil
}

// begin makes m take commands without a port.
func begin(m *miniredis.Miniredis) error {
	conn, err := m.Dial() // only then is there a server to ask
	if err != nil {
		return err
	}
	m.Server().SetPreHook(refuseToWait)
	return conn.Close()
}

func refuseToWait(peer *server.Peer, cmd string, args ...string) bool {
	waits := false
	switch cmd {
	case "BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BZMPOP", "BZPOPMIN", "BZPOPMAX":
		waits = true
	case "XREAD", "XREADGROUP":
		waits = slices.ContainsFunc(args, func(arg string) bool { return strings.EqualFold(arg, "block") })
	}
	if waits {
		peer.WriteError("ERR the embedded Redis has no commands that wait, such as " + cmd)
	}
	return waits
}

func (s *socket) accept() {
	defer s.listener.Close()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns[conn] = true
		s.mu.Unlock()
		s.served.Go(func() { s.serve(conn) })
	}
}

// writeTimeout is how long a client may take to read what it is told. miniredis writes while
// it holds its lock, so one that reads nothing, as a process that was stopped with Ctrl-Z,
// holds up all others for that long, once: it loses its connection then.
const writeTimeout = time.Second

// impatient is a connection to a client that may read nothing.
type impatient struct{ net.Conn }

func (c impatient) Write(p []byte) (int, error) {
	n := 0
	err := c.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		n, err = c.Conn.Write(p)
	}
	if err != nil {
		_ = c.Close()
	}
	return n, err
}

// serve runs the commands of a connection until that ends.
func (s *socket) serve(conn net.Conn) {
	in, peer := bufio.NewReader(conn), server.NewPeer(bufio.NewWriter(impatient{conn}))
	for !peer.Closed() {
		s.mu.Lock()
		s.limit(conn)
		s.mu.Unlock()
		args, err := readRequest(in)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) { // what follows cannot be told from it
				peer.WriteError("ERR Protocol error: " + err.Error())
				peer.Flush()
			}
			break
		}
		s.run(peer, args)
		peer.Flush()
	}
	_ = conn.Close() // first: somebody may be writing to it
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	// miniredis forgets what a peer listened to only by these.
	s.run(peer, []string{"UNSUBSCRIBE"})
	s.run(peer, []string{"PUNSUBSCRIBE"})
}

// run runs a command. One that miniredis fails at costs a connection and not the process.
func (s *socket) run(peer *server.Peer, args []string) {
	s.one.Lock()
	defer s.one.Unlock()
	defer func() {
		if failed := recover(); failed != nil {
			// miniredis holds its lock while a command runs, and keeps it then.
			_ = s.redis.TryLock()
			s.redis.Unlock()
			peer.WriteError(fmt.Sprintf("ERR the embedded Redis failed at %.40q: %v", args[0], failed))
			peer.Close()
		}
	}()
	s.redis.Server().Dispatch(peer, args)
}

// alone calls f while no command runs.
func (s *socket) alone(f func()) {
	s.one.Lock()
	defer s.one.Unlock()
	f()
}

// How a socket that is closed lets its clients finish: one that has just connected is heard,
// and commands that were sent together are answered together. Whose answers are lost sends
// all of them again to the next server, and hears there of its own job that it is there
// already; and a new connection that ends before its first answer costs Redis's client seconds.
const (
	closeSoon  = 20 * time.Millisecond // for all
	closePause = time.Millisecond      // then until a client pauses for so long
	closeLate  = time.Second           // for none
)

// limit says how long a client may take for its next command, if the socket is closed. The
// caller holds mu.
func (s *socket) limit(conn net.Conn) {
	if s.closed.IsZero() {
		return
	}
	until := time.Now().Add(closePause)
	if soon := s.closed.Add(closeSoon); until.Before(soon) {
		until = soon
	}
	if late := s.closed.Add(closeLate); until.After(late) {
		until = late
	}
	_ = conn.SetReadDeadline(until)
}

// close ends all connections. No command runs from then on. The socket's file stays.
func (s *socket) close() {
	s.mu.Lock()
	s.closed = time.Now()
	_ = s.listener.(*net.UnixListener).SetDeadline(s.closed.Add(closeSoon)) // who has connected is heard
	for conn := range s.conns {
		s.limit(conn)
	}
	s.mu.Unlock()
	s.served.Wait()
}

// remove removes the file, which must be this socket's still.
func (s *socket) remove() error {
	if s.aside != "" {
		return os.RemoveAll(s.aside)
	}
	return os.Remove(s.path)
}

// What one request may have: as many arguments as Redis takes, and more bytes than
// any job has.
const (
	maxArgs  = 1 << 20
	maxBytes = 64 << 20
)

// readRequest reads a command with its arguments, which is an array of bulk strings.
// There is at least one. miniredis's own reader takes the lengths as they come, and
// some end the process.
func readRequest(in *bufio.Reader) ([]string, error) {
	n, err := readLength(in, '*', 1, maxArgs)
	if err != nil {
		return nil, err
	}
	var args []string
	for left := maxBytes; n > 0; n-- {
		size, err := readLength(in, '$', 0, left)
		if err != nil {
			return nil, err
		}
		left -= size
		text := make([]byte, size+2)
		if _, err := io.ReadFull(in, text); err != nil {
			return nil, err
		}
		if string(text[size:]) != "\r\n" {
			return nil, fmt.Errorf("want a line break after %d bytes", size)
		}
		args = append(args, string(text[:size]))
	}
	return args, nil
}

func readLength(in *bufio.Reader, kind byte, least, most int) (int, error) {
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, err
	}
	if end := len(line) - 2; err == nil && end > 0 && line[0] == kind && line[end] == '\r' {
		n, err := strconv.ParseUint(string(line[1:end]), 10, 31)
		if err == nil && int(n) >= least && int(n) <= most {
			return int(n), nil
		}
	}
	return 0, fmt.Errorf("got %.40q, want %c and %d to %d", line, kind, least, most)
}

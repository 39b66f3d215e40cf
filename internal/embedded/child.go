package embedded

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// start starts a server with the data of the folder, and says which.
func start(dir string, lock *os.File) (server, string, error) {
	path, version, unfit := find(dir)
	if unfit == nil {
		s, err := startChild(path, dir, lock)
		return s, fmt.Sprintf("redis-server %s runs for this process, with its data in %s", version, dir), err
	}
	if _, err := os.Stat(filepath.Join(dir, "appendonlydir")); err == nil {
		return nil, "", fmt.Errorf("redis-server has kept the jobs in %s, but %w: install it, or name a Redis as redis: in the config", dir, unfit)
	}
	s, err := startMini(dir)
	return s, fmt.Sprintf("miniredis runs within this process, and saves to %s each second; a real Redis is faster and safer, but %v", dir, unfit), err
}

var versionPattern = regexp.MustCompile(`v=((\d+)\S*)`)

// find finds a redis-server that can run in the folder. The error says why there is none.
func find(dir string) (path, version string, unfit error) {
	if path, unfit = exec.LookPath("redis-server"); unfit != nil {
		return "", "", errors.New("there is no redis-server on the PATH")
	}
	text, _ := exec.Command(path, "--version").Output()
	match := versionPattern.FindStringSubmatch(string(text) + " v=0")
	if major, _ := strconv.Atoi(match[2]); major < 7 { // earlier versions keep their data under another name
		return "", "", fmt.Errorf("%s has version %s, and 7 is needed", path, match[1])
	}
	if len(dir) > 90 || runtime.GOOS == "windows" { // a socket's path has at most 103 bytes on some systems
		return "", "", fmt.Errorf("redis-server cannot have a Unix socket in %s", dir)
	}
	return path, match[1], nil
}

// child is a redis-server that is this process's child.
type child struct {
	dir, log string
	process  *os.Process
	exited   chan struct{} // closed when the process has ended
	status   error
}

func startChild(path, dir string, lock *os.File) (server, error) {
	c := &child{dir: dir, log: filepath.Join(dir, "redis.log"), exited: make(chan struct{})}
	log, err := os.OpenFile(c.log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, "--dir", ".", "--port", "0", "--unixsocket", socketFile, "--unixsocketperm", "700",
		"--save", "", "--appendonly", "yes", "--auto-aof-rewrite-min-size", "4mb", "--maxmemory-policy", "noeviction")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, childAttributes()
	cmd.ExtraFiles = []*os.File{lock} // the child holds the lock, too, because it may outlive this process
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // because Linux ends the child with the thread that started it
		err := cmd.Start()
		_ = log.Close()
		c.process = cmd.Process
		if started <- err; err == nil {
			c.status = cmd.Wait()
			close(c.exited)
		}
	}()
	return c, <-started
}

// failed gives the last line that the server logged, which says why it has ended.
func (c *child) failed() error {
	select {
	case <-c.exited:
	default:
		return nil
	}
	text, _ := os.ReadFile(c.log)
	text = bytes.TrimSpace(text)
	line := text[bytes.LastIndexByte(text, '\n')+1:]
	return fmt.Errorf("the redis-server in %s has ended (%w): %s; its log is %s", c.dir, cmp.Or(c.status, errors.New("exit status 0")), line, c.log)
}

func (c *child) save() error { return nil } // it does so by itself

func (c *child) stop(bool) error {
	_ = c.process.Signal(syscall.SIGTERM)
	select {
	case <-c.exited:
	case <-time.After(patience):
	}
	return nil
}

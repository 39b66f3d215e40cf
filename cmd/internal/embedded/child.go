package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// start starts a server with the data of the folder. lock is the folder's.
func start(dir string, lock *os.File) (*server, error) {
	path, unfit := redisServer(dir)
	if unfit == nil {
		return startChild(path, dir, lock)
	}
	if _, err := os.Stat(filepath.Join(dir, "appendonlydir")); err == nil {
		return nil, fmt.Errorf("the jobs are those of a redis-server, but %w", unfit)
	}
	s, err := startMini(dir)
	s.name = fmt.Sprintf("miniredis runs within this process, and saves to %s each second; a real Redis is faster and safer, but %v", dir, unfit)
	return s, err
}

// redisServer returns the path of a redis-server that can run in the folder, or why there is none.
func redisServer(dir string) (path string, err error) {
	if path, err = exec.LookPath("redis-server"); err != nil {
		return "", errors.New("there is no redis-server on the PATH")
	}
	// Earlier versions keep their data under another name.
	if text, _ := exec.Command(path, "--version").Output(); !regexp.MustCompile(` v=([7-9]|\d\d)\.`).Match(text) {
		return "", fmt.Errorf("%s is older than version 7", path)
	}
	if len(dir) > 90 { // a socket's path has at most 103 bytes on some systems
		return "", errors.New("the path of the folder is too long for the socket of a redis-server")
	}
	return path, nil
}

func startChild(path, dir string, lock *os.File) (*server, error) {
	log, err := os.Create(filepath.Join(dir, "redis.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, "--port", "0", "--unixsocket", "redis.sock", "--unixsocketperm", "700",
		"--save", "", "--appendonly", "yes", "--auto-aof-rewrite-min-size", "4mb", "--maxmemory-policy", "noeviction")
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, log, log, childAttributes()
	cmd.ExtraFiles = []*os.File{lock} // the child holds the lock, too, because it may outlive this process
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // because Linux ends the child with the thread that started it
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	stop := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience):
		}
		return nil
	}
	name := "redis-server runs for this process, with its data in " + dir
	return &server{name: name, ended: ended, tend: func() error { return nil }, stop: stop}, <-started
}

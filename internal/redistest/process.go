package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

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

package embedded

import (
	"context"
	"errors"
	"net"
	"sync"
)

// A Host connects a worker to the embedded Redis of a folder, whichever process
// runs it: another worker, as long as one does, and otherwise this one. So when
// the worker that runs it stops, another takes over with its next command.
type Host struct {
	folder  Folder
	prepare Prepare

	mu     sync.Mutex
	server *Server // nil unless this process runs it
	closed bool
}

// Prepare makes a server ready that nobody can find yet. Once it can be found,
// started is called. Neither may use the server's host.
type Prepare func(*Server) (started func(), err error)

// NewHost is the host of a worker. It has each server prepared that it starts.
func (f Folder) NewHost(prepare Prepare) *Host {
	return &Host{folder: f, prepare: prepare}
}

// Dial connects to the embedded Redis, and starts it where none is running. Its
// form is that of a Redis client's dialer; network and address do not matter.
func (h *Host) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	addr, err := h.find(ctx)
	if err != nil {
		return nil, err
	}
	return Dial(ctx, addr)
}

func (h *Host) find(ctx context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server != nil {
		return h.server.Addr(), nil
	}
	if addr, ok := h.folder.Find(ctx); ok {
		return addr, nil
	}
	if h.closed {
		return "", errors.New("the embedded Redis has stopped")
	}
	server, err := h.folder.start(h.prepare)
	if running, ok := errors.AsType[*RunningError](err); ok {
		return running.Addr, nil
	}
	if err != nil {
		return "", err
	}
	h.server = server
	return server.Addr(), nil
}

// Runs reports whether this process runs the embedded Redis.
func (h *Host) Runs() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.server != nil
}

// Close ends the server if this process runs it; what it holds is kept for the
// next one. Nothing can be dialled afterwards but the server of another process.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.server == nil {
		return nil
	}
	server := h.server
	h.server = nil
	return server.Close()
}

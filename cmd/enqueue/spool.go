package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/embedded"
)

// spool is the sink where no worker runs: a file that the next one reads.
type spool struct {
	opener
	lines   [][]byte
	jobs    []line
	kept    int
	claims  claims         // made when a job first needs them
	seen    embedded.Stamp // of what they were read from
	started sink           // the Redis of a worker that started meanwhile
}

// spoolBatch is how many jobs are written at once, unless all or none are.
const spoolBatch = 1000

func (s *spool) add(ctx context.Context, l line) error {
	if s.started != nil {
		return s.started.add(ctx, l)
	}
	if err := s.claim(l); err != nil {
		return s.refuse(l, err)
	}
	text, err := l.Line()
	if err != nil {
		return err
	}
	s.lines, s.jobs = append(s.lines, text), append(s.jobs, l)
	if len(s.lines) >= spoolBatch && s.refused != nil {
		return s.keep(ctx)
	}
	return nil
}

func (s *spool) flush(ctx context.Context) error {
	if err := s.keep(ctx); err != nil {
		return err
	}
	if s.started != nil {
		return s.started.flush(ctx)
	}
	s.warn(nil)
	return nil
}

func (s *spool) keep(ctx context.Context) error {
	if len(s.lines) == 0 {
		return nil
	}
	seen, err := embedded.Spool(s.seen, s.lines)
	if errors.Is(err, embedded.ErrChanged) {
		if err := s.claimAgain(); err != nil {
			return err
		}
		return s.keep(ctx)
	}
	if running, ok := errors.AsType[*embedded.RunningError](err); ok {
		return s.move(ctx, running.Addr)
	}
	if err != nil {
		return err
	}
	if s.kept == 0 {
		fmt.Fprintln(s.stderr, "enqueue: no Redis is configured and no worker is running: the jobs wait in a file for the next \"worker run\"")
	}
	if s.claims != nil {
		s.seen = seen
	}
	s.kept += len(s.lines)
	for _, l := range s.jobs {
		s.used[l.Queue] = true
	}
	s.lines, s.jobs = nil, nil
	return nil
}

func (s *spool) move(ctx context.Context, addr string) error {
	var err error
	if s.started, err = s.embedded(ctx, addr); err != nil {
		s.started = nil
		return err
	}
	for _, l := range s.jobs {
		if err := s.started.add(ctx, l); err != nil {
			return err
		}
	}
	s.lines, s.jobs = nil, nil
	return nil
}

func (s *spool) added() int {
	if s.started != nil {
		return s.kept + s.started.added()
	}
	return s.kept
}

// undo has nothing to do in the file, which takes all jobs or none.
func (s *spool) undo(ctx context.Context) error {
	if s.started != nil {
		return s.started.undo(ctx)
	}
	return nil
}

func (s *spool) close() {
	if s.started != nil {
		s.started.close()
	}
}

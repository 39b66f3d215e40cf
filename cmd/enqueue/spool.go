package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/jobspec"
)

// spool is the sink where no worker runs: a file that the next one reads.
type spool struct {
	opener
	folder  embedded.Folder
	jobs    []line // that are not written yet
	kept    int
	claims  claims         // made when a job first needs them
	seen    embedded.Stamp // of what they were read from
	replace *replaced      // by the Redis of a worker that has started meanwhile
}

// spoolBatch is how many jobs are written at once, unless all or none are.
const spoolBatch = 1000

func (s *spool) add(ctx context.Context, l line) error {
	if err := s.claim(l); err != nil {
		return s.refuse(l, err)
	}
	s.jobs = append(s.jobs, l)
	if len(s.jobs) >= spoolBatch && s.refused != nil {
		return s.keep(ctx)
	}
	return nil
}

// send leaves it to a later add, or to flush: a file is written whole.
func (s *spool) send(context.Context) {}

func (s *spool) flush(ctx context.Context) error {
	if err := s.keep(ctx); err != nil {
		return err
	}
	if s.replace.sink != sink(s) {
		return s.replace.flush(ctx)
	}
	s.warn(nil)
	return nil
}

func (s *spool) keep(ctx context.Context) error {
	if len(s.jobs) == 0 {
		return nil
	}
	var lines [][]byte
	for _, l := range s.jobs {
		text, err := l.Line()
		if err != nil {
			return err
		}
		lines = append(lines, text)
	}
	seen, err := s.folder.Spool(s.seen, lines)
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
	s.kept += len(s.jobs)
	for _, l := range s.jobs {
		s.used[l.Queue] = true
	}
	s.jobs = nil
	return nil
}

func (s *spool) move(ctx context.Context, addr string) error {
	started, err := s.embedded(ctx, addr)
	if err != nil {
		return err
	}
	started.count = s.kept
	s.replace.sink = started
	for _, l := range s.jobs {
		if err := started.add(ctx, l); err != nil {
			return err
		}
	}
	started.send(ctx)
	return started.failed
}

func (s *spool) added() int { return s.kept }

// undo has nothing to do in the file, which takes all jobs or none.
func (s *spool) undo(context.Context) error { return nil }

func (s *spool) close() {}

// claims are what jobs keep others from, as the keys that asynq has for it: an ID in
// its queue, and a type with its payload.
type claims map[string]bool

// claim has a job of the spool claim what it would in asynq, or says that another one
// has. Only a job that names an ID or is to be unique can meet another, so the folder
// is not read for any other.
func (s *spool) claim(l line) error {
	if s.claims == nil {
		if !l.ownID && l.Unique == 0 {
			return nil
		}
		if err := s.readClaims(); err != nil {
			return err
		}
	}
	id, work := claimsOf(l.Job)
	switch {
	case s.claims[id]:
		return sameID(l)
	case l.Unique > 0 && s.claims[work]:
		return sameWork(l)
	}
	s.claims.add(l.Job)
	return nil
}

func (s *spool) readClaims() error {
	lines, keys, seen, err := s.folder.Waiting()
	if err != nil {
		return err
	}
	s.claims, s.seen = claims{}, seen
	for _, key := range keys {
		s.claims[key] = true
	}
	for _, text := range lines {
		if job, err := jobspec.Parse(text); err == nil { // else the worker drops it, and says so
			s.claims.add(job)
		}
	}
	for _, l := range s.jobs {
		s.claims.add(l.Job)
	}
	return nil
}

// claimAgain has the batch claim what it did once more, since others have added jobs
// before it was written. What they have claimed by now is theirs.
func (s *spool) claimAgain() error {
	jobs := s.jobs
	s.jobs = nil
	if err := s.readClaims(); err != nil {
		return err
	}
	for _, l := range jobs {
		err := s.claim(l)
		if err == nil {
			s.jobs = append(s.jobs, l)
		} else if err = s.refuse(l, err); err != nil {
			return err
		}
	}
	return nil
}

func (c claims) add(j jobspec.Job) {
	id, work := claimsOf(j)
	c[id] = true
	if j.Unique > 0 {
		c[work] = true
	}
}

// claimsOf is what a filled job claims: its ID, and its work if it is to be unique.
func claimsOf(j jobspec.Job) (id, work string) {
	return asynqdb.Hash(j.Queue, j.ID), asynqdb.Lock(j.Queue, j.Type, j.Payload)
}

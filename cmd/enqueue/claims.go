package main

import (
	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/jobspec"
)

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
	lines, keys, seen, err := embedded.Waiting()
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
	lines, jobs := s.lines, s.jobs
	s.lines, s.jobs = nil, nil
	if err := s.readClaims(); err != nil {
		return err
	}
	for i, l := range jobs {
		err := s.claim(l)
		if err == nil {
			s.lines, s.jobs = append(s.lines, lines[i]), append(s.jobs, l)
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

package main

import (
	"io"
	"testing"

	"github.com/headgate/headgate/internal/asynqdb"
	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/internal/jobspec"
)

// Of two commands that add the same job at the same moment while no worker runs, one
// is told that it is there.
func TestOneIDAtTheSameMoment(t *testing.T) {
	folder := embedded.Folder(t.TempDir())
	refused := map[*spool][]string{}
	command := func(ids ...string) *spool {
		s := &spool{folder: folder, replace: &replaced{}}
		s.replace.sink = s
		s.opener = opener{config.Default(), io.Discard, func(l line, _ error) { refused[s] = append(refused[s], l.ID) }, queueSet{}}
		for _, id := range ids {
			job := jobspec.Job{Type: "http:request", ID: id}.Fill(jobspec.Options{}, config.Default())
			if err := s.add(t.Context(), line{Job: job, ownID: true}); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	first, second := command("both", "first's"), command("second's", "both")
	for _, s := range []*spool{first, second} {
		if err := s.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(refused[first]) > 0 || len(refused[second]) != 1 || refused[second][0] != "both" {
		t.Errorf("refused are %q of the first, %q of the second; want none, and both", refused[first], refused[second])
	}
	if first.added() != 2 || second.added() != 1 {
		t.Errorf("added are %d and %d, want 2 and 1", first.added(), second.added())
	}
	lines, _, _, err := folder.Waiting()
	if len(lines) != 3 || err != nil {
		t.Errorf("the spool has %q, %v; want 3 jobs", lines, err)
	}
}

// What waits to be spooled goes to a worker that has started meanwhile, and so does what comes
// after it.
func TestAWorkerStartsMeanwhile(t *testing.T) {
	folder := embedded.Folder(t.TempDir())
	to := &replaced{}
	to.sink = &spool{opener: opener{config.Default(), io.Discard, nil, queueSet{}}, folder: folder, replace: to}
	add := func() {
		t.Helper()
		job := jobspec.Job{Type: "mine"}.Fill(jobspec.Options{}, config.Default())
		if err := to.add(t.Context(), line{Job: job}); err != nil {
			t.Fatal(err)
		}
		if err := to.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add()
	server, err := folder.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	add()
	add()
	defer to.close()
	q, ok := to.sink.(*queues)
	if !ok || to.added() != 3 {
		t.Fatalf("added are %d to a %T, want 3, and queues", to.added(), to.sink)
	}
	if n := q.rdb.LLen(t.Context(), asynqdb.Key("default", asynqdb.Pending)).Val(); n != 2 {
		t.Errorf("%d jobs are pending, want the 2 that were added since it started", n)
	}
}

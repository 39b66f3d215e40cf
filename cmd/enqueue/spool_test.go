package main

import (
	"io"
	"testing"

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

// Command pipeline shows a pipeline that is configuration alone: headgate.yaml
// has its three stages, which are a command, a call of an API and another
// command, and a limit for each.
//
//	go run ./examples/pipeline
//
// This program is only what surrounds it: it writes files, serves the API that
// the second stage calls, enqueues the first stage's jobs, and measures.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/examples/internal/example"
	"github.com/headgate/headgate/internal/programs"
)

//go:embed headgate.yaml
var config string

var files = flag.Int("files", 120, "how many files go through")

func main() {
	flag.Parse()
	example.Main(run)
}

func run(ctx context.Context, t *example.Table) error {
	commands, err := programs.Install(ctx)
	if err != nil {
		return err
	}
	defer commands.Close()
	other := &api{told: map[string]int{}}
	server := httptest.NewServer(other)
	defer server.Close()
	if err := commands.Write("headgate.yaml", config); err != nil {
		return err
	}
	for _, folder := range []string{"inbox", "archive"} {
		if err := os.Mkdir(filepath.Join(commands.Dir, folder), 0o700); err != nil {
			return err
		}
	}
	var jobs []example.Job
	for i := range *files {
		file := fmt.Sprintf("inbox/%d.txt", i)
		if err := commands.Write(file, content(i)); err != nil {
			return err
		}
		jobs = append(jobs, example.Job{Type: "exec:checksum", ID: file, Payload: map[string]any{"file": file, "api": server.URL}})
	}
	fmt.Printf("%d files go through three stages\n", len(jobs))
	began := time.Now()
	ended, err := example.Run(ctx, commands, jobs, len(stages)*len(jobs))
	if err != nil {
		return err
	}
	report(t, began, ended)
	n := archived(commands.Dir)
	t.Promised("files that came through", fmt.Sprint(len(jobs)), fmt.Sprint(n), n == len(jobs))
	other.mu.Lock()
	defer other.mu.Unlock()
	t.Once("calls made twice", other.told)
	return nil
}

// stages are those of headgate.yaml with what their limits let through: burst
// jobs at first, and rate a second.
var stages = []struct {
	task        string
	rate, burst float64
}{{"exec:checksum", 30, 2}, {"http:request", 20, 4}, {"exec:archive", 15, 2}}

func report(t *example.Table, began time.Time, ended []example.Ended) {
	denials := 0
	for _, stage := range stages {
		var started []time.Time
		for _, e := range ended {
			if e.Type == stage.task && e.Outcome == "done" {
				started = append(started, e.Started)
				denials += e.Denials
			}
		}
		slices.SortFunc(started, time.Time.Compare)
		t.Promised(stage.task, fmt.Sprintf("%d jobs", *files), fmt.Sprintf("%d jobs", len(started)), len(started) == *files)
		t.Measured("", fmt.Sprintf("%g/s", stage.rate), fmt.Sprintf("%.1f/s", example.PerSecond(started)))
		t.None("  started before its permit", early(started, began, stage.rate, stage.burst))
		began = started[0] // nothing of the next stage can have been before
	}
	t.Denials("denials per job", denials, len(ended))
}

// early counts the starts that come before a limit lets so many through.
func early(started []time.Time, began time.Time, rate, burst float64) int {
	n := 0
	for i, at := range started {
		if float64(i+1) > burst+rate*at.Sub(began).Seconds() {
			n++
		}
	}
	return n
}

// archived counts the files that came through as they were.
func archived(folder string) int {
	n := 0
	for i := range *files {
		text, err := os.ReadFile(filepath.Join(folder, "archive", fmt.Sprintf("%d.txt", i)))
		if err == nil && string(text) == content(i) {
			n++
		}
	}
	return n
}

func content(i int) string { return fmt.Sprintf("This is file %d.\n", i) }

type api struct {
	mu   sync.Mutex
	told map[string]int // how often, by file
}

func (a *api) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	file, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[string(file)]++
}

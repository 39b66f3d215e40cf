package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stats"
)

// The status names the jobs whose handlers have not returned after their end, except those of lost workers.
func TestPrintStatus_Stuck(t *testing.T) {
	now := time.Now()
	job := func(id string) []stats.StuckJob {
		return []stats.StuckJob{{Type: "mail:send", Queue: "default", ID: id, Ended: now.Add(-90 * time.Second)}}
	}
	s := &inspect.Status{At: now, Workers: []stats.Process{{Host: "web1", PID: 7, Stuck: job("here\n")}, {Host: "web2", PID: 8, Lost: true, Stuck: job("gone")}}}
	var out bytes.Buffer
	if err := printStatus(&out, "default", s, nil); err != nil {
		t.Fatal(err)
	}
	want := "job here␊ of type mail:send has not returned on worker web1:7 since its end 1 min 30 s ago: it keeps its slots of concurrency limits\n"
	if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "gone") {
		t.Errorf("got\n%s, want\n%s", out.String(), want)
	}
}

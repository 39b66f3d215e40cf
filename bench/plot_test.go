package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wellFormed fails the test unless the file is XML. It returns its text.
func wellFormed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(string(text)))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return string(text)
		} else if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
}

func TestBacklogPlot(t *testing.T) {
	s := spec{Jobs: 1000, Rate: 50, Capacity: 50}
	rows := []backlogRow{
		{System: "headgate", LimitUsed: new(0.999), Denials: new(0.95), CPU: 0.2, LatenessP99: new(20.0)},
		{System: "bullmq", LimitUsed: new(0.97), CPU: 0.1, LatenessP99: new(0.0)},
	}
	file := filepath.Join(t.TempDir(), "backlog.svg")
	if err := writePlot(file, backlogPlot(s, rows)); err != nil {
		t.Fatal(err)
	}
	text := wellFormed(t, file)
	for _, want := range []string{"1,000 jobs, 50/s, capacity 50", ">99.9<", ">0.95<", ">0.2<", ">20<", "does not apply"} {
		if !strings.Contains(text, want) {
			t.Errorf("the plot does not show %s", want)
		}
	}
}

func TestTicks(t *testing.T) {
	tests := []struct{ most, top, step float64 }{
		{1, 1, 0.2}, {9.4, 10, 2}, {23, 25, 5}, {0.16, 0.2, 0.05}, {1200, 1200, 200},
	}
	for _, tt := range tests {
		top, step := ticks(tt.most)
		if diff := top - tt.top; diff > 1e-9 || diff < -1e-9 || step-tt.step > 1e-9 || tt.step-step > 1e-9 {
			t.Errorf("ticks(%v) = %v, %v; want %v, %v", tt.most, top, step, tt.top, tt.step)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %s, want %s", n, got, want)
		}
	}
	if got := median([]float64{3, 1, 2}); got != 2 {
		t.Errorf("median of 3 1 2 = %v, want 2", got)
	}
	if got := median([]float64{4, 1, 2, 3}); got != 2.5 {
		t.Errorf("median of 4 1 2 3 = %v, want 2.5", got)
	}
	if got := number[int](nil, 0); got != "–" {
		t.Errorf("number(nil) = %s, want a dash", got)
	}
}

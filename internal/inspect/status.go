package inspect

import (
	"time"

	"github.com/headgate/headgate/internal/history"
)

// Status is how far all work is.
type Status struct {
	At      time.Time         `json:"at"` // by Redis's clock
	Queues  []Queue           `json:"queues"`
	Limits  []Limit           `json:"-"`
	Workers []history.Process `json:"workers"`
}

// Queue is how far a queue is.
type Queue struct {
	Queue  string `json:"queue"`
	Paused bool   `json:"paused"`
	Counts Counts `json:"counts"`
	Tasks  []Task `json:"tasks"`
}

// Task is how far the jobs of one type are.
type Task struct {
	Type      string    `json:"type"`
	Counts    Counts    `json:"counts"`
	Estimated bool      `json:"estimated"` // whether Counts are: Done and Failed never are
	Rate      float64   `json:"done_a_second"`
	End       time.Time `json:"end,omitzero"`        // zero if nobody knows, or nothing is left
	EndAbout  bool      `json:"end_about,omitempty"` // whether End is an estimate
}

// Counts is how many jobs there are, by state.
type Counts struct {
	Pending   int `json:"pending"`
	Waiting   int `json:"waiting"`
	Retry     int `json:"retry"`
	Scheduled int `json:"scheduled"`
	Running   int `json:"running"`
	Archived  int `json:"archived"`
	Done      int `json:"done"`
	Failed    int `json:"failed"`
}

// Left is how many are still to be done.
func (c Counts) Left() int { return c.Pending + c.Waiting + c.Retry + c.Scheduled + c.Running }

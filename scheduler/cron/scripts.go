package cron

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	cronMoveScript = script.New("cron/move")
	cronReadScript = script.New("cron/read")
)

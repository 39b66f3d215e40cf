package stats

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	aliveScript  = script.New("history/alive")
	recordScript = script.New("history/record")
)

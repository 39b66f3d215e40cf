package lanes

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	acquireScript = script.New("lanes/acquire")
	forgetScript  = script.New("lanes/forget")
	queuedScript  = script.New("lanes/queued")
	refusedScript = script.New("lanes/refused")
	waitingScript = script.New("lanes/waiting")
)

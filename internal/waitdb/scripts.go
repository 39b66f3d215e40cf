package waitdb

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	acquireScript       = script.New("lanes/acquire")
	correctDemandScript = script.New("lanes/correct_demand")
	claimScript         = script.New("lanes/claim")
	expireScript        = script.New("lanes/expire")
	forgetScript        = script.New("lanes/forget")
	grantScript         = script.New("lanes/grant")
	lateScript          = script.New("lanes/late")
	leadScript          = script.New("lanes/lead")
	mendScript          = script.New("lanes/mend")
	presumeDeadScript   = script.New("lanes/presume_dead")
	publishSharesScript = script.New("lanes/publish_shares")
	queuedScript        = script.New("lanes/queued")
	recountScript       = script.New("lanes/recount")
	refusedScript       = script.New("lanes/refused")
	resignScript        = script.New("lanes/resign")
	waitingScript       = script.New("lanes/waiting")
)

package waitdb

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	acceptedScript      = script.New("limits/accepted")
	lookScript          = script.New("limits/look")
	acquireScript       = script.New("lanes/acquire")
	correctDemandScript = script.New("lanes/repair_demand")
	claimScript         = script.New("lanes/claim")
	expireScript        = script.New("lanes/expire_grants")
	forgetScript        = script.New("lanes/forget")
	grantScript         = script.New("lanes/grant")
	lateScript          = script.New("lanes/expire_waits")
	leadScript          = script.New("lanes/become_leader")
	mendScript          = script.New("lanes/repair_records")
	presumeDeadScript   = script.New("lanes/expire_active")
	publishSharesScript = script.New("lanes/publish_shares")
	queuedScript        = script.New("lanes/read_lanes")
	recountScript       = script.New("lanes/repair_reserved")
	refusedScript       = script.New("lanes/rate_limited")
	resignScript        = script.New("lanes/step_down")
	waitingScript       = script.New("lanes/positions")
)

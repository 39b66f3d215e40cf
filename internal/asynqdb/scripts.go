package asynqdb

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	attemptScript     = script.New("asynq/attempt")
	crashScript       = script.New("asynq/crash")
	dequeueScript     = script.New("asynq/dequeue")
	extendLeaseScript = script.New("asynq/extend_lease")
	fieldsScript      = script.New("asynq/fields")
	giveBackScript    = script.New("asynq/give_back")
	identifyScript    = script.New("asynq/identify")
	postponeScript    = script.New("asynq/postpone")
	promoteScript     = script.New("asynq/promote")
	putBackScript     = script.New("asynq/put_back")
	restoreScript     = script.New("asynq/restore")
	writeResultScript = script.New("asynq/write_result")
)

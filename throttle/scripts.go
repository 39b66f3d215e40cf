package throttle

import "github.com/headgate/headgate/internal/script"

// The scripts that this package runs.
var (
	acceptedScript = script.New("limits/accepted")
	allowScript    = script.New("limits/allow")
	blockScript    = script.New("limits/block")
	blockForScript = script.New("limits/block_for")
	carryScript    = script.New("limits/carry")
	cellScript     = script.New("limits/cell")
	chargeScript   = script.New("limits/charge")
	courseScript   = script.New("limits/course")
	defineScript   = script.New("limits/define")
	deleteScript   = script.New("limits/delete")
	edgesScript    = script.New("limits/edges")
	extendScript   = script.New("limits/extend")
	fileKeysScript = script.New("limits/file_keys")
	freeScript     = script.New("limits/free")
	lookScript     = script.New("limits/look")
	noteScript     = script.New("limits/note")
	pauseScript    = script.New("limits/pause")
	plainScript    = script.New("limits/plain")
	resetScript    = script.New("limits/reset")
	setKeyScript   = script.New("limits/set_key")
)

// Package lua holds headgate's Redis scripts, one file a command: of limits, of lanes, where jobs
// wait, of asynq's queues, of schedules, of crawls, and of the history. Beside them are
// includes, among them one a kind of meter. The header of a script says what the script does, its keys,
// arguments and reply. Package internal/script loads them.
package lua

import "embed"

// Files are the scripts and includes.
//
//go:embed */*.lua */include/*.lua
var Files embed.FS

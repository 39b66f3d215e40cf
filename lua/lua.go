// Package lua holds headgate's Redis scripts, one file per command: of limits, of lanes,
// where jobs wait, of asynq's queues, of schedules, of crawls, and of the history. Beside
// them are includes, among them one per kind of meter. A script's header says what it does, its
// keys, arguments and reply; the tests hold the headers against the code.
//
// Most scripts take one key, the prefix that all of a scope's keys share with
// their hash tag, and build the other keys from it: so a call stays in one slot
// of a Redis Cluster. Attempt, Crash, Dequeue, Drop, ExtendLease, Fields, GiveBack, Identify, Postpone,
// Promote, PutBack, Reconcile, Restore and WriteResult work on the keys of an asynq queue instead, which
// internal/asynqdb gives them, and know asynq's private layout.
// They work on Redis 6.2 and later.
package lua

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed */*.lua */include/*.lua
var files embed.FS

// The commands.
var (
	Accepted      = script("limits/accepted")
	Acquire       = script("lanes/acquire")
	Alive         = script("history/alive")
	Allow         = script("limits/allow")
	Attempt       = script("asynq/attempt")
	Block         = script("limits/block")
	BlockFor      = script("limits/block_for")
	Carry         = script("limits/carry")
	Cell          = script("limits/cell")
	Charge        = script("limits/charge")
	Claim         = script("lanes/claim")
	Crash         = script("asynq/crash")
	Course        = script("limits/course")
	CrawlClaim    = script("crawl/claim")
	CrawlDone     = script("crawl/done")
	CrawlFound    = script("crawl/found")
	CronMove      = script("cron/move")
	CronRead      = script("cron/read")
	Define        = script("limits/define")
	Delete        = script("limits/delete")
	Dequeue       = script("asynq/dequeue")
	Drop          = script("asynq/drop")
	Edges         = script("limits/edges")
	Expire        = script("lanes/expire")
	Extend        = script("limits/extend")
	ExtendLease   = script("asynq/extend_lease")
	Fields        = script("asynq/fields")
	FileKeys      = script("limits/file_keys")
	Forget        = script("lanes/forget")
	Free          = script("limits/free")
	GiveBack      = script("asynq/give_back")
	Grant         = script("lanes/grant")
	Identify      = script("asynq/identify")
	Late          = script("lanes/late")
	Lead          = script("lanes/lead")
	Look          = script("limits/look")
	Mend          = script("lanes/mend")
	Note          = script("limits/note")
	Pause         = script("limits/pause")
	Plain         = script("limits/plain")
	Postpone      = script("asynq/postpone")
	PresumeDead   = script("lanes/presume_dead")
	Promote       = script("asynq/promote")
	PublishShares = script("lanes/publish_shares")
	PutBack       = script("asynq/put_back")
	Queued        = script("lanes/queued")
	Reconcile     = script("asynq/reconcile")
	Record        = script("history/record")
	Recount       = script("lanes/recount")
	Refused       = script("lanes/refused")
	Reset         = script("limits/reset")
	Resign        = script("lanes/resign")
	Restore       = script("asynq/restore")
	SetKey        = script("limits/set_key")
	Waiting       = script("lanes/waiting")
	WriteResult   = script("asynq/write_result")
)

// Guard is put in front of asynq's own scripts that end a job's lease.
var Guard = expand("asynq/include/guard.lua", map[string]bool{})

func script(name string) *Script {
	text := expand(name+".lua", map[string]bool{})
	s := &Script{redis.NewScript(text), name, text}
	bySHA[s.Hash()] = s
	return s
}

// expand returns a file's text with each include in place of the line that
// names it, the first time it is named. Where that line is indented, what it brings
// is known in its block only, so it comes again where it is named after that: a
// script makes all functions that it passes by anew in each call.
//
// What follows a line "-- @inner" stands in a function of its own. A function that is made
// takes each name that it uses from the one around it at once; but a local beside it by a
// walk along all others that are in use, which is most of what long scripts cost.
func expand(file string, included map[string]bool) string {
	var b strings.Builder
	b.Grow(32 << 10) // as long as most
	for range write(&b, file, "", included) {
		b.WriteString("end)()\n")
	}
	return b.String()
}

// write writes the file with an indent before each line, and returns how many functions it
// leaves open. Every process does it for all scripts when it starts, so it looks at no text
// twice.
func write(b *strings.Builder, file, indent string, included map[string]bool) (open int) {
	for line := range strings.Lines(textOf(file)) {
		own := line[:len(line)-len(strings.TrimLeft(line, " "))]
		name, names := strings.CutPrefix(strings.TrimSuffix(line[len(own):], "\n"), "-- @include ")
		switch {
		case line == "-- @inner\n":
			b.WriteString("return (function()\n")
			open++
		case !names && line != "\n":
			b.WriteString(indent)
			fallthrough
		case !names:
			b.WriteString(line)
		case !included[name]:
			known := included
			if own != "" {
				known = maps.Clone(included)
			}
			known[name] = true
			open += write(b, includes[name], indent+own, known)
		}
	}
	return open
}

// includes are the files of the includes by name: each is in the folder of who needs it, or
// in include, which all need.
var includes = func() map[string]string {
	found := map[string]string{}
	for _, pattern := range []string{"include/*.lua", "*/include/*.lua"} {
		paths, _ := fs.Glob(files, pattern) // the pattern is right
		for _, file := range paths {
			found[strings.TrimSuffix(path.Base(file), ".lua")] = file
		}
	}
	return found
}()

// texts are the files that have been read: each brings the same ones.
var texts = map[string]string{}

func textOf(file string) string {
	text, ok := texts[file]
	if !ok {
		bytes, err := files.ReadFile(file)
		if err != nil {
			panic(fmt.Sprintf("lua: %v", err))
		}
		text = string(bytes)
		texts[file] = text
	}
	return text
}

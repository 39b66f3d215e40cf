// Package lua holds headgate's Redis scripts: one file per command, and
// includes, among them one per kind of meter. A script's header says what it does, its
// keys, arguments and reply; the tests hold the headers against the code.
//
// Most scripts take one key, the prefix that all of a scope's keys share with
// their hash tag, and build the other keys from it: so a call stays in one slot
// of a Redis Cluster. Crash, Dequeue, Fields, GiveBack, Identify, Postpone, Promote and
// PutBack work on the keys of an asynq queue instead, and know asynq's private layout.
// They work on Redis 6.2 and later.
package lua

import (
	"embed"
	"fmt"
	"maps"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua include/*.lua
var files embed.FS

// The commands.
var (
	Accepted   = script("accepted")
	Acquire    = script("acquire")
	Allow      = script("allow")
	Block      = script("block")
	BlockFor   = script("block_for")
	Carry      = script("carry")
	Cell       = script("cell")
	Charge     = script("charge")
	Claim      = script("claim")
	Crash      = script("crash")
	CrawlClaim = script("crawl_claim")
	CrawlDone  = script("crawl_done")
	CrawlFound = script("crawl_found")
	CronMove   = script("cron_move")
	CronRead   = script("cron_read")
	Define     = script("define")
	Delete     = script("delete")
	Dequeue    = script("dequeue")
	Edges      = script("edges")
	Extend     = script("extend")
	Fields     = script("fields")
	FileKeys   = script("file_keys")
	Forecast   = script("forecast")
	Forget     = script("forget")
	Free       = script("free")
	GiveBack   = script("give_back")
	Grant      = script("grant")
	Identify   = script("identify")
	Late       = script("late")
	Lead       = script("lead")
	Look       = script("look")
	Mend       = script("mend")
	Note       = script("note")
	Pause      = script("pause")
	Plain      = script("plain")
	Postpone   = script("postpone")
	Promote    = script("promote")
	PutBack    = script("put_back")
	Recall     = script("recall")
	Record     = script("record")
	Recount    = script("recount")
	Refused    = script("refused")
	Reset      = script("reset")
	Resign     = script("resign")
	SetKey     = script("set_key")
	Settle     = script("settle")
	Shelve     = script("shelve")
	UnsetKey   = script("unset_key")
	Waiting    = script("waiting")
)

func script(name string) *redis.Script {
	return redis.NewScript(expand(name+".lua", map[string]bool{}))
}

var includeLine = regexp.MustCompile(`(?m)^ *-- @include (\w+)\n`)

var lineStart = regexp.MustCompile(`(?m)^([^\n])`)

// expand returns a file's text with each include in place of the line that
// names it, the first time it is named. Where that line is indented, what it brings
// is known in its block only, so it comes again where it is named after that: a
// script makes all functions that it passes by anew in each call.
func expand(file string, included map[string]bool) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("lua: %v", err))
	}
	return includeLine.ReplaceAllStringFunc(string(text), func(line string) string {
		indent, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "-- @include ")
		if included[name] {
			return ""
		}
		known := included
		if indent != "" {
			known = maps.Clone(included)
		}
		known[name] = true
		return lineStart.ReplaceAllString(expand("include/"+name+".lua", known), indent+"$1")
	})
}

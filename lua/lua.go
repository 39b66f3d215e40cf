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

// expand returns a file's text with each include in place of the line that
// names it, the first time it is named. Where that line is indented, what it brings
// is known in its block only, so it comes again where it is named after that: a
// script makes all functions that it passes by anew in each call.
func expand(file string, included map[string]bool) string {
	var b strings.Builder
	b.Grow(32 << 10) // as long as most
	write(&b, file, "", included)
	return b.String()
}

// write writes the file with an indent before each line. Every process does it for all
// scripts when it starts, so it looks at no text twice.
func write(b *strings.Builder, file, indent string, included map[string]bool) {
	for line := range strings.Lines(textOf(file)) {
		own := line[:len(line)-len(strings.TrimLeft(line, " "))]
		name, names := strings.CutPrefix(strings.TrimSuffix(line[len(own):], "\n"), "-- @include ")
		switch {
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
			write(b, "include/"+name+".lua", indent+own, known)
		}
	}
}

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

// Package script loads the Redis scripts of folder lua, and runs them.
//
// Most scripts take one key, the prefix that all of a scope's keys share with their hash tag, and
// build the other keys from it, so a call stays in one slot of a Redis Cluster. The scripts in
// lua/asynq work on the keys of an asynq queue instead. All scripts work on Redis 6.2 and later.
package script

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/lua"
)

// Guard is the code in front of asynq's own scripts that end a job's lease.
var Guard = expand("asynq/include/guard.lua", map[string]bool{})

// New returns the script of a file in folder lua, by its name without the ending: "limits/allow".
func New(name string) *Script {
	text := expand(name+".lua", map[string]bool{})
	s := &Script{redis.NewScript(text), name, text}
	bySHA.Store(s.Hash(), s)
	return s
}

// expand returns a file's text with each include in place of the line that names it, the first time
// it is named. If that line is indented, the include is known in its block only, so it comes again
// if it is named after that. That keeps scripts fast, because each call makes all functions anew
// that it passes.
//
// What follows a line "-- @inner" is in a function of its own. Lua finds a local of an outer
// function at once when it makes a function, but a local of the same function by a walk along all
// others, which is most of what long scripts cost.
func expand(file string, included map[string]bool) string {
	var b strings.Builder
	b.Grow(32 << 10) // as long as most
	for range write(&b, file, "", included) {
		b.WriteString("end)()\n")
	}
	return b.String()
}

// write writes the file with an indent before each line, and returns how many functions it leaves
// open.
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

// includes are the files of the includes by name.
var includes = func() map[string]string {
	found := map[string]string{}
	for _, pattern := range []string{"include/*.lua", "*/include/*.lua"} {
		paths, _ := fs.Glob(lua.Files, pattern) // the pattern is right
		for _, file := range paths {
			found[strings.TrimSuffix(path.Base(file), ".lua")] = file
		}
	}
	return found
}()

func textOf(file string) string {
	text, err := lua.Files.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("lua: %v", err))
	}
	return string(text)
}

// Package script loads the Redis scripts of folder lua, and runs them.
//
// Most scripts take one key, the prefix of all keys of a scope, and build the other keys from it.
// The prefix contains the hash tag, so a call stays in one slot of a Redis Cluster. The scripts in
// lua/asynq take the keys of an asynq queue instead. All scripts work on Redis 6.2 and later.
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

// Guard is the code that precedes asynq's own scripts that end a job's lease.
var Guard = expand("asynq/include/guard.lua", map[string]bool{})

// The codes that precede and follow a script of asynq's for a job of a batch. The script is a function
// between BatchHead and one of the others.
var (
	BatchHead = "local function asynq_script()\n"
	BatchAdd  = "\nend\n" + expand("asynq/include/add_to_batch.lua", map[string]bool{})
	BatchEnd  = "\nend\n" + expand("asynq/include/after_end.lua", map[string]bool{})
)

// New returns the script of a file in folder lua. The name has no ending: "limits/allow".
func New(name string) *Script {
	text := expand(name+".lua", map[string]bool{})
	s := &Script{redis.NewScript(text), name, text}
	known.Store(text, s)
	known.Store(s.Hash(), s)
	return s
}

// expand returns the text of a file in folder lua, with two kinds of lines replaced:
//
//   - "-- @include name" becomes the text of that include, unless the include is visible already.
//     If the line is indented, the include is visible only within the block of the line.
//   - "-- @inner" puts the rest of the file into a function, because long scripts run faster if
//     their first locals belong to an outer function.
//
// included has the names of the includes that are visible. expand adds to it.
func expand(file string, included map[string]bool) string {
	var b strings.Builder
	b.Grow(32 << 10) // as long as most scripts
	for range writeExpanded(&b, file, "", included) {
		b.WriteString("end)()\n")
	}
	return b.String()
}

// writeExpanded writes the expanded file to b, with indent before each line. It returns the number
// of functions that "-- @inner" has opened and that the caller must close.
func writeExpanded(b *strings.Builder, file, indent string, included map[string]bool) (inner int) {
	text, err := lua.Files.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("lua: %v", err))
	}
	for line := range strings.Lines(string(text)) {
		lineIndent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		name, isInclude := strings.CutPrefix(strings.TrimSuffix(line[len(lineIndent):], "\n"), "-- @include ")
		switch {
		case line == "-- @inner\n":
			b.WriteString("return (function()\n")
			inner++
		case !isInclude && line != "\n":
			b.WriteString(indent)
			fallthrough
		case !isInclude:
			b.WriteString(line)
		case !included[name]:
			inScope := included
			if lineIndent != "" {
				inScope = maps.Clone(included)
			}
			inScope[name] = true
			inner += writeExpanded(b, includes[name], indent+lineIndent, inScope)
		}
	}
	return inner
}

// includes maps the name of each include to its file.
var includes = func() map[string]string {
	found := map[string]string{}
	for _, pattern := range []string{"include/*.lua", "*/include/*.lua"} {
		paths, _ := fs.Glob(lua.Files, pattern) // these patterns are valid
		for _, file := range paths {
			found[strings.TrimSuffix(path.Base(file), ".lua")] = file
		}
	}
	return found
}()

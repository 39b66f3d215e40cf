package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A Script is one of the commands. Its errors say what is wrong, as [Explain] does.
type Script struct {
	*redis.Script
	name, text string
}

// bySHA has all scripts, as *Script, by the SHA-1 of their texts.
var bySHA sync.Map

// Run runs the script. go-redis sends its digest, and its text only to a Redis that does not
// have it. If the script meets a key of a wrong type, Run removes such keys of the scope and runs
// the script once more. Permits that the script took before it met that key are then taken twice.
func (s *Script) Run(ctx context.Context, rdb redis.Scripter, keys []string, args ...any) *redis.Cmd {
	cmd := s.Script.Run(ctx, rdb, keys, args...)
	if client, ok := rdb.(redis.UniversalClient); ok && isWrongType(cmd.Err()) && strings.HasPrefix(keys[0], "hg:{") && repair(ctx, client, keys[0]) {
		cmd = s.Script.Run(ctx, rdb, keys, args...)
	}
	if err := cmd.Err(); err != nil {
		cmd.SetErr(explain(err, s, User(rdb), keys))
	}
	return cmd
}

// User returns the user of a client. It is empty if the client does not say.
func User(rdb any) string {
	switch c := rdb.(type) {
	case interface{ User() string }:
		return c.User()
	case interface{ Options() *redis.Options }:
		return cmp.Or(c.Options().Username, "default")
	case interface{ Options() *redis.ClusterOptions }:
		return cmp.Or(c.Options().Username, "default")
	}
	return ""
}

// explained is an answer of Redis in words for a person. It wraps the answer itself.
type explained struct {
	error
	text string
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.error }

// How the versions of Redis, and miniredis, say that an error is of a script, and where.
var (
	inScript = regexp.MustCompile(`(?: script: |call to f_)([0-9a-f]{40})`)
	atLine   = regexp.MustCompile(`(?:user_script|<string>|\s): ?(\d+)`)
	noise    = regexp.MustCompile(`(?s)^(?:ERR )?(?:Error (?:running|compiling) script \([^)]*\): )?(?:@?(?:user_script|<string>)?: ?-?\d+: )*(?:ERR )?|,? script: [0-9a-f]{40}.*|\s*stack traceback:.*`)
	ofLua    = regexp.MustCompile(`^ERR (?:Error|user_script|<string>)`)
	calls    = regexp.MustCompile(`\b(?:call|pcall)\(['"]([A-Za-z]+)['"]`)
)

// How they say that a user lacks a right, to a command, a key or a channel.
var (
	noCommand = regexp.MustCompile(`(?:to run the '([^']+)' command|can't run this command)`)
	noKey     = regexp.MustCompile(`access (?:one of the keys|at least one of the keys|the '(.*)' key)`)
	noChannel = regexp.MustCompile(`(?:access one of the channels|access the '(.*)' channel|publish to the channel)`)
)

// Explain is the error of a command that a user sent, in words for a person. A missing right
// names the user and the right. An error of a script says which script failed; the digest of its
// text, and how Lua puts things, are left out. Any other error stays as it is.
func Explain(err error, user string, cmd redis.Cmder) error {
	if err == nil {
		return nil
	}
	keys, text := keysOf(cmd)
	var script *Script
	if sha := inScript.FindStringSubmatch(err.Error()); sha != nil {
		if ours, ok := bySHA.Load(sha[1]); ok {
			script = ours.(*Script)
		} else {
			script = &Script{name: "of asynq", text: text}
		}
	}
	return explain(err, script, user, keys)
}

// keysOf is the first key of a command; or the keys of a command that runs a script, and the
// script's text if the command has it.
func keysOf(cmd redis.Cmder) (keys []string, script string) {
	args := cmd.Args()
	first, end := 1, 2
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		n, _ := args[2].(int)
		first, end = 3, 3+n
		if name == "eval" {
			script, _ = args[1].(string)
		}
	}
	for i := first; i < min(end, len(args)); i++ {
		keys = append(keys, fmt.Sprint(args[i]))
	}
	return keys, script
}

// explain is Explain for an error of a script, or of a command if that is nil.
func explain(err error, script *Script, user string, keys []string) error {
	said, answered := errors.AsType[redis.Error](err)
	if _, done := errors.AsType[*explained](err); !answered || done || errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	text := said.Error()
	within, where := "", ""
	if script != nil && (inScript.MatchString(text) || ofLua.MatchString(text)) {
		where = "the script " + script.name
		within = " in " + where
	}
	if may := refusal(text, script, within, append(keys, "")[0]); may != "" {
		if user == "" {
			return &explained{err, "this user of Redis " + may}
		}
		return &explained{err, "the Redis user " + user + " " + may}
	}
	if where == "" {
		return err
	}
	plain := strings.TrimSuffix(noise.ReplaceAllString(text, ""), ".")
	if ofLua.MatchString(text) && !replyCode.MatchString(plain) { // Lua met what a script does not expect
		plain = "the data in Redis are not as headgate writes them: " + plain
		if line := atLine.FindStringSubmatch(text); line != nil {
			where += ", line " + line[1]
		}
	}
	return &explained{err, plain + " (" + where + ")"}
}

// replyCode begins an error of Redis itself, such as WRONGTYPE.
var replyCode = regexp.MustCompile(`^[A-Z]{4,} `)

// IsDamage reports whether a command or a script failed because of data that no script has
// written. Other commands may succeed.
func IsDamage(err error) bool {
	said, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := said.Error()
	return isWrongType(said) || strings.HasPrefix(text, "ERR ") && (inScript.MatchString(text) || ofLua.MatchString(text))
}

func isWrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// refusal is which right a user lacks by the text of an error, if it says so.
func refusal(text string, script *Script, within, key string) string {
	if m := noKey.FindStringSubmatch(text); m != nil {
		key = cmp.Or(m[1], key)
		return "may not use the key " + key + within + ": the user needs ~" + pattern(key) + " (NOPERM)"
	}
	if m := noChannel.FindStringSubmatch(text); m != nil {
		channel := cmp.Or(m[1], key)
		return "may not use the channel " + channel + within + ": the user needs &" + pattern(channel) + " (NOPERM)"
	}
	m := noCommand.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	command := strings.ToLower(cmp.Or(m[1], commandAt(text, script)))
	if command == "" {
		return "may not run a command" + within + ": worker run --check as this user names the right that it needs (NOPERM)"
	}
	return "may not run " + strings.ToUpper(command) + within + ": the user needs +" + command + " (NOPERM)"
}

// commandAt is the command at the line of a script that an error names.
func commandAt(text string, script *Script) string {
	line := atLine.FindStringSubmatch(text)
	if script == nil || line == nil {
		return ""
	}
	n, _ := strconv.Atoi(line[1])
	lines := strings.Split(script.text, "\n")
	if n < 1 || n > len(lines) {
		return ""
	}
	return append(calls.FindStringSubmatch(lines[n-1]), "", "")[1]
}

// pattern is that of an ACL for keys and channels such as this one: all of a scope, or of asynq.
func pattern(name string) string {
	if end := strings.Index(name, "}:"); end > 0 && strings.HasPrefix(name, "hg:{") {
		return name[:end+2] + "*"
	}
	if strings.HasPrefix(name, "asynq:") {
		return "asynq:*"
	}
	return name
}

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

// A Script is one of the scripts in folder lua.
type Script struct {
	*redis.Script
	name, text string
}

// bySHA maps the SHA-1 of a script's text to its *Script.
var bySHA sync.Map

// Run runs the script. go-redis sends the digest of the script, and sends the text only if Redis
// does not have the script. If the script fails because a key has a wrong type, Run removes all
// such keys of the scope and runs the script once more. Permits that the script took before it
// failed are then taken twice. Run returns the errors of [Explain].
func (s *Script) Run(ctx context.Context, rdb redis.Scripter, keys []string, args ...any) *redis.Cmd {
	keys = WholeSlot(rdb, keys)
	cmd := s.Script.Run(ctx, rdb, keys, args...)
	if cmd.Err() == nil {
		return cmd
	}
	if client, ok := rdb.(redis.UniversalClient); ok && isWrongType(cmd.Err()) && strings.HasPrefix(keys[0], "hg:{") && removeWrongTypes(ctx, client, keys[0]) == nil {
		cmd = s.Script.Run(ctx, rdb, keys, args...)
	}
	if err := cmd.Err(); err != nil {
		cmd.SetErr(explain(err, s, User(rdb), keys))
	}
	return cmd
}

// User returns the name of the Redis user of a client, or "" if the type of the client is unknown.
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

// explained is an error of Redis with a readable text. It wraps the original error.
type explained struct {
	error
	text string
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.error }

// Patterns of error messages, in all versions of Redis and in miniredis.
var (
	inScript  = regexp.MustCompile(`(?: script: |call to f_)([0-9a-f]{40})`)
	atLine    = regexp.MustCompile(`(?:user_script|<string>|\s): ?(\d+)`)
	noise     = regexp.MustCompile(`(?s)^(?:ERR )?(?:Error (?:running|compiling) script \([^)]*\): )?(?:@?(?:user_script|<string>)?: ?-?\d+: )*(?:ERR )?|,? script: [0-9a-f]{40}.*|\s*stack traceback:.*`)
	ofLua     = regexp.MustCompile(`^ERR (?:Error|user_script|<string>)`)
	replyCode = regexp.MustCompile(`^[A-Z]{4,} `) // such as WRONGTYPE
	calls     = regexp.MustCompile(`\b(?:call|pcall)\(['"]([A-Za-z]+)['"]`)
	noCommand = regexp.MustCompile(`(?:to run the '([^']+)' command|can't run this command)`)
	noKey     = regexp.MustCompile(`access (?:one of the keys|at least one of the keys|the '(.*)' key)`)
	noChannel = regexp.MustCompile(`(?:access one of the channels|access the '(.*)' channel|publish to the channel)`)
)

// Explain returns the error of a command with a readable text. If the user lacks a permission, the
// text names the user and the permission. If a script failed, the text names the script and drops
// the digest and the prefixes of Lua. Other errors stay as they are.
func Explain(err error, user string, cmd redis.Cmder) error {
	if err == nil {
		return nil
	}
	args := cmd.Args()
	keys, text := args[min(1, len(args)):min(2, len(args))], ""
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		n, _ := args[2].(int)
		keys = args[3:min(3+n, len(args))]
		text, _ = args[1].(string)
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = fmt.Sprint(key)
	}
	var script *Script
	if sha := inScript.FindStringSubmatch(err.Error()); sha != nil {
		if ours, ok := bySHA.Load(sha[1]); ok {
			script = ours.(*Script)
		} else {
			script = &Script{name: "of asynq", text: text}
		}
	}
	return explain(err, script, user, names)
}

// explain is Explain for an error of a script, or of a plain command if script is nil.
func explain(err error, script *Script, user string, keys []string) error {
	redisErr, isReply := errors.AsType[redis.Error](err)
	if _, done := errors.AsType[*explained](err); !isReply || done || errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	text := redisErr.Error()
	within, where := "", ""
	if script != nil && (inScript.MatchString(text) || ofLua.MatchString(text)) {
		where = "the script " + script.name
		within = " in " + where
	}
	if refused := missingRight(text, script, within, append(keys, "")[0]); refused != "" {
		subject := "this user of Redis"
		if user != "" {
			subject = "the Redis user " + user
		}
		return &explained{err, subject + " may not " + refused + " (NOPERM)"}
	}
	if where == "" {
		return err
	}
	message := strings.TrimSuffix(noise.ReplaceAllString(text, ""), ".")
	if ofLua.MatchString(text) && !replyCode.MatchString(message) { // an error of Lua: the script read malformed data
		message = "Redis holds corrupt data: " + message
		if line := atLine.FindStringSubmatch(text); line != nil {
			where += ", line " + line[1]
		}
	}
	return &explained{err, message + " (" + where + ")"}
}

// IsCorrupt reports whether a command or a script failed because of corrupt data. Commands that
// read other keys may succeed.
func IsCorrupt(err error) bool {
	redisErr, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := redisErr.Error()
	return isWrongType(redisErr) || strings.HasPrefix(text, "ERR ") && (inScript.MatchString(text) || ofLua.MatchString(text))
}

func isWrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// missingRight returns the action that Redis refused and the permission for it, from the text of an
// error. It returns "" if the error is not about permissions.
func missingRight(text string, script *Script, within, key string) string {
	if m := noKey.FindStringSubmatch(text); m != nil {
		key = cmp.Or(m[1], key)
		return "use the key " + key + within + ": the user needs ~" + pattern(key)
	}
	if m := noChannel.FindStringSubmatch(text); m != nil {
		channel := cmp.Or(m[1], key)
		return "use the channel " + channel + within + ": the user needs &" + pattern(channel)
	}
	m := noCommand.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	command := m[1]
	if line := atLine.FindStringSubmatch(text); command == "" && script != nil && line != nil { // read the command from the script's line
		lines := strings.Split(script.text, "\n")
		if n, _ := strconv.Atoi(line[1]); n >= 1 && n <= len(lines) {
			command = append(calls.FindStringSubmatch(lines[n-1]), "", "")[1]
		}
	}
	if command == "" {
		return "run a command" + within + ": run \"worker run --check\" as this user to see the missing right"
	}
	return "run " + strings.ToUpper(command) + within + ": the user needs +" + strings.ToLower(command)
}

// pattern returns the ACL pattern that a user needs for a key or a channel: all names of a scope,
// all names of asynq, or this name.
func pattern(name string) string {
	if end := strings.Index(name, "}:"); end > 0 && strings.HasPrefix(name, "hg:{") {
		return name[:end+2] + "*"
	}
	if strings.HasPrefix(name, "asynq:") {
		return "asynq:*"
	}
	return name
}

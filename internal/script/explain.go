package script

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
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

// known has each *Script by its text and by the SHA-1 of its text.
var known sync.Map

// Run runs the script. go-redis sends the digest of the script, and sends the text only if Redis
// does not have the script. If the script fails because a key has a wrong type, Run removes all
// such keys of the scope and runs the script once more. Permits that the script took before it
// failed are then taken twice. Run returns its errors as [Explain] does.
func (s *Script) Run(ctx context.Context, rdb redis.Scripter, keys []string, args ...any) *redis.Cmd {
	keys = WholeSlot(rdb, keys)
	cmd := s.Script.Run(ctx, rdb, keys, args...)
	if client, ok := rdb.(redis.UniversalClient); ok && strings.HasPrefix(keys[0], "hg:{") && RemoveWrongTypes(ctx, client, keys[0], cmd.Err()) {
		cmd = s.Script.Run(ctx, rdb, keys, args...)
	}
	if err := cmd.Err(); err != nil {
		cmd.SetErr(explain(err, User(rdb), s, keys[0]))
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
	inScript       = regexp.MustCompile(`(?: script: |call to f_)[0-9a-f]{40}|^ERR (?:Error|user_script|<string>)`)
	luaError       = regexp.MustCompile(`^ERR (?:Error|user_script|<string>)`)
	atLine         = regexp.MustCompile(`(?:user_script|<string>|\s): ?(\d+)`)
	noise          = regexp.MustCompile(`(?s)^(?:ERR )?(?:Error (?:running|compiling) script \([^)]*\): )?(?:@?(?:user_script|<string>)?: ?-?\d+: )*(?:ERR )?|,? script: [0-9a-f]{40}.*|\s*stack traceback:.*`)
	replyCode      = regexp.MustCompile(`^[A-Z]{4,} `) // such as "WRONGTYPE "
	redisCall      = regexp.MustCompile(`\b(?:call|pcall)\(['"]([A-Za-z]+)['"]`)
	refusedCommand = regexp.MustCompile(`(?:to run the '([^']+)' command|can't run this command)`)
	refusedKey     = regexp.MustCompile(`access (?:one of the keys|at least one of the keys|the '(.*)' key)`)
	refusedChannel = regexp.MustCompile(`(?:access one of the channels|access the '(.*)' channel|publish to the channel)`)
)

// UnnamedCommand is in the text of an error of [Explain] about a missing right, if Redis does not say
// for which command.
const UnnamedCommand = "run a command"

// Explain returns the error of a command with a readable text. If the user lacks a permission, the
// text names the user and the permission. If a script failed, the text names the script and drops
// the digest and the prefixes of Lua. Other errors stay as they are.
func Explain(err error, user string, cmd redis.Cmder) error {
	args := slices.Concat(cmd.Args(), []any{"", "", "", ""})
	key, script := args[1], &Script{name: "of asynq"}
	if name := cmd.Name(); name == "evalsha" || name == "eval" {
		script.text, key = fmt.Sprint(args[1]), args[3]
		if ours, ok := known.Load(script.text); ok {
			script = ours.(*Script)
		}
	}
	return explain(err, user, script, fmt.Sprint(key))
}

// explain is Explain for a command with the first key `key`. script is the script that the command
// runs. Its text is empty if the command runs no script.
func explain(err error, user string, script *Script, key string) error {
	redisErr, isReply := errors.AsType[redis.Error](err)
	if _, done := errors.AsType[*explained](err); !isReply || done || errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "NOSCRIPT") {
		return err
	}
	text, line, within := redisErr.Error(), 0, ""
	if inScript.MatchString(text) {
		within = " in the script " + script.name
		if m := atLine.FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1])
		}
	}
	if action, right := missingRight(text, script.text, line, key); action != "" {
		subject := "this user of Redis"
		if user != "" {
			subject = "the Redis user " + user
		}
		return &explained{err, subject + " may not " + action + within + ": " + right + " (NOPERM)"}
	}
	if within == "" {
		return err
	}
	message := strings.TrimSuffix(noise.ReplaceAllString(text, ""), ".")
	where := strings.TrimPrefix(within, " in ")
	if luaError.MatchString(text) && !replyCode.MatchString(message) { // an error of Lua: the script read malformed data
		message = "Redis holds corrupt data: " + message
		if line > 0 {
			where += ", line " + strconv.Itoa(line)
		}
	}
	return &explained{err, message + " (" + where + ")"}
}

// IsCorrupt reports whether err means that data in Redis is corrupt: a script failed, or a key has
// a wrong type. Commands that read other keys can still succeed.
func IsCorrupt(err error) bool {
	redisErr, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	text := redisErr.Error()
	return isWrongType(redisErr) || strings.HasPrefix(text, "ERR ") && inScript.MatchString(text)
}

// isWrongType reports whether err says that a key has a wrong type. It is false for nil.
func isWrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// missingRight returns the action that Redis refused and the permission for it, from the text of an
// error. It returns "" if the error is not about permissions. If the error does not name the
// command that a script may not run, missingRight finds the command in the given line of the
// script. line is 0 if it is unknown.
func missingRight(text, script string, line int, key string) (action, right string) {
	if m := refusedKey.FindStringSubmatch(text); m != nil {
		key = cmp.Or(m[1], key)
		return "use the key " + key, "the user needs ~" + pattern(key)
	}
	if m := refusedChannel.FindStringSubmatch(text); m != nil {
		channel := cmp.Or(m[1], key)
		return "use the channel " + channel, "the user needs &" + pattern(channel)
	}
	m := refusedCommand.FindStringSubmatch(text)
	if m == nil {
		return "", ""
	}
	command := m[1]
	if lines := strings.Split(script, "\n"); command == "" && line > 0 && line <= len(lines) {
		command = append(redisCall.FindStringSubmatch(lines[line-1]), "", "")[1]
	}
	if command == "" {
		return UnnamedCommand, `run "headgate-worker run --check" as this user to see the missing right`
	}
	return "run " + strings.ToUpper(command), "the user needs +" + strings.ToLower(command)
}

// pattern returns the ACL pattern that a user needs for a key or a channel: all names of its scope,
// all names of asynq, or only this name.
func pattern(name string) string {
	if end := strings.Index(name, "}:"); end > 0 && strings.HasPrefix(name, "hg:{") {
		return name[:end+2] + "*"
	}
	if strings.HasPrefix(name, "asynq:") {
		return "asynq:*"
	}
	return name
}

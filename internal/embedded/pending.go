package embedded

import (
	"bufio"
	"bytes"
	"slices"
	"strconv"
	"strings"

	miniserver "github.com/alicebob/miniredis/v2/server"

	"github.com/headgate/headgate/internal/asynqdb"
)

// isPending reports whether a key is a queue's list of pending jobs. asynq adds jobs at the head of
// such a list, and miniredis copies a list to add to its head: 60,000 jobs took it half a minute of
// CPU. So miniredis holds these lists in reverse, and adds to the tail.
func isPending(key string) bool { return strings.HasSuffix(key, ":"+asynqdb.Pending) }

// raw is the name of clients that see the lists of pending jobs as miniredis holds them.
const raw = "headgate raw" // which no client can give itself: it has a space

// reverse is a hook that miniredis calls before each command, those of scripts too. It carries the
// command out if that is about a list of pending jobs and about an end of it, and its reply is that
// of Redis. The commands are those that asynq and the scripts use for such lists.
func (m *mini) reverse(peer *miniserver.Peer, name string, args ...string) (done bool) {
	if len(args) == 0 || !isPending(args[0]) || peer.ClientName == raw {
		return false
	}
	command := append([]string{name}, args...)
	switch name {
	case "LPUSH", "LPOP":
		command[0] = "R" + name[1:]
	case "RPUSH", "RPOP":
		command[0] = "L" + name[1:]
	case "RPOPLPUSH":
		command = append(command, "LEFT", "LEFT")
		command[0] = "LMOVE"
	case "LREM":
		copy(command[2:], negated(0, args[1:min(2, len(args))]))
	case "LINDEX", "LRANGE", "LTRIM":
		copy(command[2:], negated(-1, args[1:]))
	default:
		return false
	}
	var reply bytes.Buffer
	inner := miniserver.NewPeer(bufio.NewWriter(&reply))
	inner.Ctx, inner.Resp3, inner.ClientName = peer.Ctx, peer.Resp3, raw
	m.Server().Dispatch(inner, command)
	inner.Flush()
	peer.Ctx = inner.Ctx
	if text := reply.String(); name == "LRANGE" && strings.HasPrefix(text, "*") {
		values, _ := miniserver.ParseReply(bufio.NewReader(&reply))
		words := flat(values)
		slices.Reverse(words)
		peer.WriteStrings(words)
	} else {
		peer.WriteRaw(text)
	}
	return true
}

// negated gives from-n for each number n, in reverse order.
func negated(from int, numbers []string) []string {
	var result []string
	for _, text := range slices.Backward(numbers) {
		if n, err := strconv.Atoi(text); err == nil {
			text = strconv.Itoa(from - n)
		}
		result = append(result, text)
	}
	return result
}

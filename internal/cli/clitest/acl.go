package clitest

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/internal/redistest"
)

// startLocked starts a Redis with the users that an operator is told to make, for
// whatever scope, and sets $REDIS to its URL as the worker's, and $REDIS_ENQUEUE and
// $REDIS_PAGE as the others.
func startLocked(ts *testscript.TestScript, args ...string) (*redisServer, io.Closer) {
	s, users, err := redistest.StartWithUsers("../../docs/operating.md", "*", args...)
	ts.Check(err)
	for name := range users {
		ts.Setenv("REDIS_"+strings.ToUpper(name), users.URLAs(name, s))
	}
	return &redisServer{s, s.Client(), users.URLAs("worker", s)}, s
}

// refusals are what a user wanted of Redis and had no right to.
func (r *redisServer) refusals(user string) (all []string) {
	if r.plain == nil {
		return nil
	}
	entries, err := r.client.ACLLog(context.Background(), 128).Result()
	if err != nil {
		return nil // the script has stopped it
	}
	for _, e := range entries {
		if e.Username == user {
			all = append(all, fmt.Sprint(e.Reason, " ", e.Context, " ", e.Object))
		}
	}
	return all
}

package script

import (
	"context"
	"strings"
)

// Prefix returns the prefix of all keys of a scope, which is the only KEYS argument of most
// scripts.
func Prefix(scope string) string { return "hg:{" + scope + "}:" }

// Scope returns the name of the scope with this key prefix.
func Scope(prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(prefix, "hg:{"), "}:")
}

// Literal returns a SCAN pattern that matches only the text itself: it escapes stars and the like.
func Literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

type actorKey struct{}

// WithActor returns a context that records the actor of changes in the changelog.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor of a context, or "".
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

package script

import (
	"context"
	"strings"
)

// Prefix returns what the keys of a scope begin with: the only key of most scripts.
func Prefix(scope string) string { return "hg:{" + scope + "}:" }

// Scope returns the scope whose keys begin with a prefix.
func Scope(prefix string) string {
	return strings.TrimSuffix(strings.TrimPrefix(prefix, "hg:{"), "}:")
}

// Literal returns the pattern of SCAN that finds the text itself, which may have stars in it.
func Literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

type actorKey struct{}

// WithActor returns a context whose changes are put down to an actor in the changelog.
func WithActor(ctx context.Context, actor string) context.Context {
	return context.WithValue(ctx, actorKey{}, actor)
}

// Actor returns the actor of a context, or an empty text.
func Actor(ctx context.Context) string {
	actor, _ := ctx.Value(actorKey{}).(string)
	return actor
}

//go:build unix

package tasks

import (
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// A secret that is the beginning of another does not show the other's end.
func TestExecSecretsThatBeginAlike(t *testing.T) {
	t.Setenv("HEADGATE_SHORT", "prefix12")
	t.Setenv("HEADGATE_LONG", "prefix12SECRETTAIL")
	h := shell(`printf %s "$B"; printf %s "$B" >&2; exit $CODE`, func(c *Command) {
		c.Env = []string{"A=${env:HEADGATE_SHORT}", "B=${env:HEADGATE_LONG}", "CODE=0"}
	})
	c := h.Commands["it"]
	args, _ := c.Args(t.Context(), asynq.NewTask("exec:it", nil))
	if out, err := h.run(t.Context(), "it", c, args); err != nil || string(out) != "${env:HEADGATE_LONG}" {
		t.Errorf("printed %q, %v", out, err)
	}
	c.Env[2] = "CODE=1"
	if _, err := h.run(t.Context(), "it", c, args); err == nil || !strings.HasSuffix(err.Error(), ": ${env:HEADGATE_LONG}") {
		t.Errorf("failed with %v", err)
	}
}

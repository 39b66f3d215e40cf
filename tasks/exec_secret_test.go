//go:build unix

package tasks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// A secret that is the beginning of another does not show the other's end.
func TestExec_SecretsWithOnePrefix_AreHidden(t *testing.T) {
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

// Wherever what is kept of a command's errors begins, it shows no part of a secret.
func TestExec_CutStderr_HidesSecrets(t *testing.T) {
	const value = "0123456789SECRETTAIL"
	t.Setenv("T", value)
	for after := maxStderr - len(value) - 1; after <= maxStderr+1; after++ {
		for _, often := range []int{1, after / len(value)} { // references are shorter than the secret
			script := fmt.Sprintf(`printf 'x%%s' "$T" >&2; for i in $(seq %d); do printf %%s "$T" >&2; done; printf %%0%dd 0 >&2; exit 1`,
				often-1, after-(often-1)*len(value))
			h := shell(script, func(c *Command) { c.Env = []string{"T=${env:T}"} })
			said := h.process(t, "{}").Error()
			if strings.Contains(said, "L0") || strings.Contains(said, "L$") || len(said) > maxStderr+100 {
				t.Errorf("%d times, %d bytes after the first: %.200s", often, after, said)
			}
		}
	}
}

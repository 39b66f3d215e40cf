package asynqdb_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/asynqdb"
)

// Scripts of another asynq, with other keys and arguments, are passed on, or have a job's
// message where it is looked for. TestLayout has this asynq's.
func TestRecognize_OtherScripts(t *testing.T) {
	names := []string{asynqdb.Pending, asynqdb.Paused, asynqdb.Active, asynqdb.Lease, asynqdb.Retry, asynqdb.Archived, asynqdb.Completed, "t:id"}
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfN(rapid.SampledFrom(names), 0, 10).Draw(t, "keys")
		for i, name := range keys {
			keys[i] = asynqdb.Key("default", name)
		}
		args := rapid.SliceOfN(rapid.SampledFrom([]any{"id", []byte("message"), int64(1), 1, true, nil}), 0, 8).Draw(t, "args")
		c := asynqdb.Recognize(keys, args)
		if writes := c.Script > asynqdb.ScriptDequeue; writes != (c.Msg != nil) || writes && c.ID != "id" {
			t.Fatalf("%+v", c)
		}
		if c.Msg != nil {
			c.SetMsg([]byte("another"))
		}
	})
}

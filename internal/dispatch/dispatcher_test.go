package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/turns"
)

// Where no more words come, as with a closed client, there is a sleep all the same.
func TestSleepWithoutWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := make(chan turns.Word)
		close(words)
		began := time.Now()
		new(dispatcher).sleep(t.Context(), words, began.Add(interval), began.Add(time.Minute))
		if slept := time.Since(began); slept != time.Minute {
			t.Errorf("slept %s, want a minute", slept)
		}
	})
}

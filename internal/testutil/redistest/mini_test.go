package redistest_test

import (
	"testing"

	"github.com/headgate/headgate/internal/testutil/redistest"
)

// TestMini_UnreadMessages: a subscriber that reads nothing holds up no other client, as in Redis.
func TestMini_UnreadMessages(t *testing.T) {
	_, rdb := redistest.Mini(t)
	messages := rdb.Subscribe(t.Context(), "channel")
	defer messages.Close()
	if _, err := messages.Receive(t.Context()); err != nil { // the confirmation
		t.Fatal(err)
	}
	const n = 10_000
	for range n {
		if err := rdb.Publish(t.Context(), "channel", "text").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if _, err := messages.ReceiveMessage(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

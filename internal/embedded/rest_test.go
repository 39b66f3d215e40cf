package embedded

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// Looking at what is kept changes nothing of it.
func TestLook(t *testing.T) {
	f := Folder(t.TempDir())
	look := func(spooled int, value string) {
		t.Helper()
		rest, err := f.Look()
		if err != nil {
			t.Fatal(err)
		}
		defer rest.Close()
		rdb := redis.NewClient(&redis.Options{Dialer: rest.Dial})
		defer rdb.Close()
		if got := rdb.GetDel(t.Context(), "key").Val(); got != value || rest.Spooled != spooled || rest.Saved.IsZero() != (value == "") {
			t.Errorf("it has %q, saved %s, and %d lines; want %q and %d", got, rest.Saved, rest.Spooled, value, spooled)
		}
	}
	look(0, "")
	spool(t, f, "1", "2")
	look(2, "")
	s := start(t, f)
	if err := client(t, s).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look(2, "value")
	look(2, "value")
}

package embedded

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// Looking at what is kept changes nothing of it.
func TestLook(t *testing.T) {
	f := Folder(t.TempDir())
	look := func(value string) {
		t.Helper()
		dial, saved, err := f.Look()
		if err != nil {
			t.Fatal(err)
		}
		rdb := redis.NewClient(&redis.Options{Dialer: dial})
		defer rdb.Close()
		if got := rdb.GetDel(t.Context(), "key").Val(); got != value || saved.IsZero() != (value == "") {
			t.Errorf("it has %q, saved %s; want %q", got, saved, value)
		}
	}
	look("")
	s := start(t, f)
	if err := client(t, s).Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	look("value")
	look("value")
}

package embedded

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/headgate/headgate/internal/mutate"
)

// Whatever a client sends is a request or an error, and a request is what was written.
func FuzzReadRequest(target *testing.F) {
	f := mutate.More(target)
	for _, seed := range []string{
		"*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$0\r\n\r\n", "*0\r\n", "*1\r\n$9223372036854775807\r\n", "*1\r\n$4\r\nPINGPONG\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		args, err := readRequest(bufio.NewReader(bytes.NewReader(text)))
		if err != nil {
			return
		}
		var written bytes.Buffer
		fmt.Fprintf(&written, "*%d\r\n", len(args))
		for _, arg := range args {
			fmt.Fprintf(&written, "$%d\r\n%s\r\n", len(arg), arg)
		}
		again, err := readRequest(bufio.NewReader(&written))
		if len(args) == 0 || err != nil || !slices.Equal(args, again) {
			t.Errorf("%q is %q, and that again %q, %v", text, args, again, err)
		}
	})
}

// A file of kept keys that is damaged is an error, and what it gives can be kept again.
func FuzzKept(target *testing.F) {
	f := mutate.More(target)
	m := miniredis.NewMiniRedis()
	db := m.DB(0)
	_ = db.Set("text", "value")
	db.HSet("hash", "field", "value")
	_, _ = db.Push("list", "a", "b")
	_, _ = db.SetAdd("set", "a")
	_, _ = db.ZAdd("sorted", 1, "a")
	_, _ = db.XAdd("stream", "1-1", []string{"a", "b"})
	all, err := readAll(m)
	name := filepath.Join(f.TempDir(), "kept")
	if err == nil {
		err = replace(name, func(to io.Writer) error { return encode(all, to) })
	}
	whole, lost := os.ReadFile(name)
	if err != nil || lost != nil {
		f.Fatal(err, lost)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Fuzz(func(t *testing.T, text []byte) {
		m := miniredis.NewMiniRedis()
		if decode(bytes.NewReader(text), m.DB(0)) != nil {
			return
		}
		if _, err := readAll(m); err != nil {
			t.Error(err)
		}
	})
}

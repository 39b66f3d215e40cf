package warc

import (
	"bytes"
	"testing"

	"github.com/headgate/headgate/internal/mutate"
)

// Whatever a process left behind its whole records is cut off, and nothing of these.
func FuzzWhole(target *testing.F) {
	f := mutate.More(target)
	record := begun(target)
	f.Add([]byte{})
	f.Add(record)
	f.Add(record[:len(record)/2])
	f.Add(bytes.Repeat([]byte{0x1f, 0x8b}, 20))
	f.Fuzz(func(t *testing.T, left []byte) {
		text := append(bytes.Clone(record), left...)
		size, err := whole(bytes.NewReader(text))
		if err != nil || size < int64(len(record)) || size > int64(len(text)) {
			t.Fatalf("of %d bytes after a record of %d: whole are %d, %v", len(left), len(record), size, err)
		}
		if again, err := whole(bytes.NewReader(text[:size])); again != size || err != nil {
			t.Errorf("what was cut to %d is cut to %d, %v", size, again, err)
		}
	})
}

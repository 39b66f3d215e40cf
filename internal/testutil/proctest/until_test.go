package proctest

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// failed is a test that Until has ended.
type failed string

func (f *failed) Fatalf(format string, args ...any) { *f = failed(fmt.Sprintf(format, args...)) }

func TestUntil_EndsBeforeTimeout(t *testing.T) {
	defer func(before time.Time) { began = before }(began)
	before := flag.Lookup("test.timeout").Value.String()
	defer flag.Set("test.timeout", before) //nolint:errcheck // it was valid
	if err := flag.Set("test.timeout", "1h"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		tries := 0
		var out failed
		Until(&out, "third try", func() (bool, any) { tries++; return tries == 3, tries })
		if tries != 3 || out != "" {
			t.Errorf("it tried %d times: %s", tries, out)
		}
		Until(&out, "end of the world", func() (bool, any) { return false, "the world" })
		if text := string(out); !strings.Contains(text, "no end of the world") || !strings.Contains(text, "the world") {
			t.Errorf("it says %q", text)
		}
		if waited := time.Since(began); waited < 59*time.Minute+30*time.Second || waited > 59*time.Minute+31*time.Second {
			t.Errorf("it waited %s, want half a minute less than -timeout", waited)
		}
	})
}

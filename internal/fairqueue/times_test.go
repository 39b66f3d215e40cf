package fairqueue

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/proctest"
)

// TestTimes_OfScripts: the scripts take the same times for granted jobs as the core does.
func TestTimes_OfScripts(t *testing.T) {
	for _, pair := range []struct {
		file, name string
		want       int64
	}{
		{"turns", "MIN_ADVANCE_US", travelTime},
		{"redeem", "ARRIVAL_US", arrivalTime},
	} {
		text := proctest.ReadFile(t, "../../lua/lanes/include/"+pair.file+".lua")
		if want := fmt.Sprintf("\nlocal %s = %d\n", pair.name, pair.want); !strings.Contains(text, want) {
			t.Errorf("%s.lua does not say %q", pair.file, want)
		}
	}
}

package script

import (
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeys_Types holds the types of the keys against the table in docs/design.md.
func TestKeys_Types(t *testing.T) {
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `hg:\\{scope\\}:(\\w+:?).*?` \\| ([\\w ]+) \\|").FindAllSubmatch(text, -1) {
		if kind := string(row[2]); kind != "channel" {
			said[string(row[1])] = kind
		}
	}
	if diff := cmp.Diff(said, keys); diff != "" {
		t.Errorf("docs/design.md (-) and the code (+):\n%s", diff)
	}
}

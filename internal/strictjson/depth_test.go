package strictjson

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckDepth(t *testing.T) {
	for text, at := range map[string]int{
		strings.Repeat("[", 100) + strings.Repeat("]", 100):       -1,
		strings.Repeat("[", 101):                                  101,
		strings.Repeat(`{"a":`, 101):                              501,
		strings.Repeat("[]", 1000):                                -1,
		`{"a":"` + strings.Repeat("[", 1000) + `\"` + "[[[\"}":    -1,
		`{"a":"\\"` + strings.Repeat(",[", 101):                   109 + 100,
		strings.Repeat("[", 30_000) + strings.Repeat("]", 30_000): 101,
	} {
		err, want := CheckDepth("payload", []byte(text)), ""
		if at > 0 {
			want = fmt.Sprintf("payload is nested more than 100 levels deep, at byte %d: want at most 100", at)
		}
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%.40s…: got %s, want %q", text, got, want)
		}
	}
}

package scheduler

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestEnums_Text(t *testing.T) {
	var a Action
	var g Growth
	var j Jitter
	var r RetryPosition
	var p PriorityLevel
	for _, test := range []struct {
		text string
		read any
		want string
	}{
		{"drop", &a, "drop"},
		{"linear", &g, "linear"},
		{"none", &j, "none"},
		{"back", &r, "back"},
		{"low", &p, "low"},
		{"delete", &a, `"delete": want one of wait, archive, drop, run`},
		{"urgent", &p, `"urgent": want one of normal, high, low`},
	} {
		if err := json.Unmarshal(fmt.Appendf(nil, "%q", test.text), test.read); err != nil && err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.text, err, test.want)
		}
	}
	if got := fmt.Sprintf("%s %s %s %s %s", a, g, j, r, p); got != "drop linear none back low" {
		t.Errorf("read %s", got)
	}
}

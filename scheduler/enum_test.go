package scheduler

import (
	"encoding"
	"encoding/json"
	"fmt"
	"testing"
)

func TestEnumsAreTexts(t *testing.T) {
	type enum interface {
		fmt.Stringer
		encoding.TextMarshaler
	}
	for _, test := range []struct {
		value enum
		text  string
		read  encoding.TextUnmarshaler
	}{
		{ActionArchive, "archive", new(Action)},
		{ActionDrop, "drop", new(Action)},
		{ActionRun, "run", new(Action)},
		{GrowthExponential, "exponential", new(Growth)},
		{GrowthLinear, "linear", new(Growth)},
		{GrowthConstant, "constant", new(Growth)},
		{JitterFull, "full", new(Jitter)},
		{JitterEqual, "equal", new(Jitter)},
		{JitterNone, "none", new(Jitter)},
		{PositionKeep, "keep", new(RetryPosition)},
		{PositionBack, "back", new(RetryPosition)},
	} {
		text, err := test.value.MarshalText()
		if err != nil || string(text) != test.text || test.value.String() != test.text {
			t.Errorf("%v is written %q, %v; want %s", test.value, text, err, test.text)
		}
		if err := test.read.UnmarshalText(text); err != nil || fmt.Sprint(test.read) != test.text {
			t.Errorf("%s is read as %v, %v", text, test.read, err)
		}
	}
	var a Action
	if err := json.Unmarshal([]byte(`"delete"`), &a); err == nil || err.Error() != `"delete": want one of archive, drop, run` {
		t.Errorf("an unknown word: %v", err)
	}
	if _, err := Action(7).MarshalText(); err == nil || Action(7).String() != "7" {
		t.Errorf("an unknown value: %v, %v", Action(7), err)
	}
}

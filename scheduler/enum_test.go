package scheduler

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
)

func TestEnums_Text(t *testing.T) {
	for _, test := range []struct {
		value fmt.Stringer
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
		if test.value.String() != test.text {
			t.Errorf("%v is written %s, want %s", int(reflect.ValueOf(test.value).Int()), test.value, test.text)
		}
		if err := test.read.UnmarshalText([]byte(test.text)); err != nil || fmt.Sprint(test.read) != test.text {
			t.Errorf("%s is read as %v, %v", test.text, test.read, err)
		}
	}
	var a Action
	if err := json.Unmarshal([]byte(`"delete"`), &a); err == nil || err.Error() != `"delete": want one of archive, drop, run` {
		t.Errorf("an unknown word: %v", err)
	}
	if Action(7).String() != "7" {
		t.Errorf("an unknown value: %v", Action(7))
	}
}

package cron

import (
	"encoding"
	"testing"
)

func TestChoicesAreText(t *testing.T) {
	for _, tc := range []struct {
		value encoding.TextMarshaler
		into  encoding.TextUnmarshaler
		text  string
	}{
		{MissedSkip, new(Missed), "skip"},
		{MissedOnce, new(Missed), "once"},
		{MissedAll, new(Missed), "all"},
		{OverlapAllow, new(Overlap), "allow"},
		{OverlapSkip, new(Overlap), "skip"},
	} {
		if text, err := tc.value.MarshalText(); string(text) != tc.text || err != nil {
			t.Errorf("%v is written as %q, %v; want %q", tc.value, text, err, tc.text)
		}
		if err := tc.into.UnmarshalText([]byte(tc.text)); err != nil {
			t.Error(err)
		}
		if got, err := tc.into.(encoding.TextMarshaler).MarshalText(); string(got) != tc.text || err != nil {
			t.Errorf("%q is read as %q, %v", tc.text, got, err)
		}
	}
	for _, tc := range []struct {
		got  error
		want string
	}{
		{new(Missed).UnmarshalText([]byte("always")), `"always": want one of skip, once, all`},
		{new(Overlap).UnmarshalText(nil), `"": want one of allow, skip`},
		{marshalError(Missed(3)), "3: want 0 to 2"},
		{marshalError(Overlap(-1)), "-1: want 0 to 1"},
	} {
		if tc.got == nil || tc.got.Error() != tc.want {
			t.Errorf("got %v, want %s", tc.got, tc.want)
		}
	}
}

func marshalError(value encoding.TextMarshaler) error {
	_, err := value.MarshalText()
	return err
}

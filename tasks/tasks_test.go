package tasks

import (
	"errors"
	"testing"
)

func TestValidate(t *testing.T) {
	err := Validate("mail:send", nil)
	if want := `type "mail:send": not a built-in task type: want crawl:fetch, http:request or exec:NAME`; !errors.Is(err, ErrUnknownType) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	for _, typename := range append(Types(), PrefixExec+"it") {
		if err := Validate(typename, []byte(`[]`)); err == nil || errors.Is(err, ErrUnknownType) {
			t.Errorf("%s: got %v, want an error about the payload", typename, err)
		}
	}
}

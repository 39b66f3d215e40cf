package jobspec

import (
	"reflect"
	"testing"
)

func TestRowOf(t *testing.T) {
	for _, row := range []Row{
		{[]string{"b", "a b"}, []string{"", "x"}},
		{[]string{"z", "ä\"", "a"}, []string{"{[", "1\n2", "<&>"}},
	} {
		if got := RowOf(map[string]string{HeaderRow: row.header()}); !reflect.DeepEqual(got, row) {
			t.Errorf("%+v becomes %s and then %+v", row, row, got)
		}
	}
	for _, text := range []string{"", Row{}.header(), "{", "nonsense", `[["a"],["b","c"]]`, `{"a":1}`, `[[1],["b"]]`} {
		if got := RowOf(map[string]string{HeaderRow: text}); !got.IsZero() {
			t.Errorf("%q is the row %+v", text, got)
		}
	}
}

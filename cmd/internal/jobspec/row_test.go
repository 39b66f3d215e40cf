package jobspec

import (
	"reflect"
	"testing"
)

func TestRowOf(t *testing.T) {
	for _, row := range []Row{
		{},
		{[]string{"b", "a b"}, []string{"", "x"}},
		{[]string{"z", "ä\"", "a"}, []string{"{[", "1\n2", "<&>"}},
	} {
		if got := RowOf(map[string]string{HeaderRow: row.String()}); !reflect.DeepEqual(got, row) {
			t.Errorf("%+v becomes %s and then %+v", row, row, got)
		}
	}
	for _, text := range []string{"", "{", "nonsense", `{"a":1,"b"`, `{"a":"b","c"`, `{"a":1}`} {
		if got := RowOf(map[string]string{HeaderRow: text}); !got.IsZero() {
			t.Errorf("%q is the row %+v", text, got)
		}
	}
}

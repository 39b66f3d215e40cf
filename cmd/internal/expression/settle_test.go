package expression

import "testing"

func TestSettle(t *testing.T) {
	tests := []struct {
		text, result string
		cost         int
		err          string
	}{
		{text: "result.usage.total", result: `{"usage":{"total":412}}`, cost: 412},
		{text: "fromJSON(result.body).usage.total", result: `{"status":200,"body":"{\"usage\":{\"total\":7}}"}`, cost: 7},
		{text: "result.n + payload.n", result: `{"n":0}`, cost: 3},
		{text: "result.n", result: `{"n":0}`, cost: 0},
		{text: "result.n", result: `{"n":-1}`, err: "settle expression result.n: the result is -1: want a whole number of permits, 0 or more"},
		{text: "result.n", result: `{"n":"1"}`, err: "settle expression result.n: the result is text: want a whole number of permits, 0 or more"},
		{text: "result.n", result: `{}`, err: "settle expression result.n: the field is missing or null"},
		{text: "result.n", result: `x`, err: "settle expression result.n: the result is not JSON: invalid character 'x' looking for beginning of value"},
	}
	for _, test := range tests {
		settle, err := parse[Settle](test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		got, err := settle.Of(&Done{Job: *job(`{"n":3}`), Result: []byte(test.result), MustBeJSON: true})
		if got != test.cost || reason(err) != test.err {
			t.Errorf("%s of %s = %d, %q\nwant %d, %q", test.text, test.result, got, reason(err), test.cost, test.err)
		}
	}
	if _, err := parse[Settle]("results.n"); reason(err) != "settle expression results.n: unknown name results: want one of payload, task, result, host(…), or text in quotes" {
		t.Error(err)
	}
	if !(Settle{}).IsZero() {
		t.Error("zero: want that nothing is to be settled")
	}
}

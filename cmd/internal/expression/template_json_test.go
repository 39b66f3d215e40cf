package expression

import "testing"

func TestTemplate_JSON(t *testing.T) {
	row := Row{"url": `https://x/?a=1&b="2"`, "n": "7", "odd": "a\\b\nc\""}
	for text, want := range map[string]string{
		`{"url": ${row.url}}`:                          `{"url": "https://x/?a=1&b=\"2\""}`,
		`{"url": "${row.url}#${row.n}"}`:               `{"url": "https://x/?a=1&b=\"2\"#7"}`,
		`{"n": ${int(row.n)}, "s": "${int(row.n)}"}`:   `{"n": 7, "s": "7"}`,
		`{"a": "\"${row.odd}\\", "b": ${row.odd}}`:     `{"a": "\"a\\b\nc\"\\", "b": "a\\b\nc\""}`,
		`{"all": ${row}, "t": ${row.n == "7"}, "$${x"`: `{"all": {"n":"7","odd":"a\\b\nc\"","url":"https://x/?a=1&b=\"2\""}, "t": true, "${x"`,
	} {
		template, err := ParseTemplate(text, RowVars)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := template.JSON(row); got != want || err != nil {
			t.Errorf("%s gives %s, want %s; %v", text, got, want, err)
		}
	}
}

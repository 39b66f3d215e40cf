package redact

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

func TestQuery(t *testing.T) {
	tests := []struct{ text, want string }{
		{"GET https://h/?api_key=hunter2&q=1 failed", "GET https://h/?api_key=•••&q=1 failed"},
		{"https://h/?q=1&token=a%20b#there", "https://h/?q=1&token=•••#there"},
		{`{"url":"https://h/?access_token=abc"}`, `{"url":"https://h/?access_token=•••"}`},
		{"https://h/?key=AIzaSy", "https://h/?key=•••"},
		{"https://h/?X-Amz-Signature=f00&X-Amz-Date=1&X-Amz-Security-Token=b4", "https://h/?X-Amz-Signature=•••&X-Amz-Date=1&X-Amz-Security-Token=•••"},
		{"https://h/?sv=1;sig=f00%3D", "https://h/?sv=1;sig=•••"},
		{"https://h/?client_secret=a&PASSWORD=b&apikey=c&jwt=d", "https://h/?client_secret=•••&PASSWORD=•••&apikey=•••&jwt=•••"},
		{"https://h/?api_key=${env:API_KEY}", "https://h/?api_key=${env:API_KEY}"},
		{"https://h/?api_key=x${env:API_KEY}", "https://h/?api_key=•••"},
		{"https://h/?page_token=abc&monkey=1&tokens=5&keys=a", "https://h/?page_token=abc&monkey=1&tokens=5&keys=a"},
		{"key=value without a URL", "key=value without a URL"},
	}
	for _, test := range tests {
		if got := Query(test.text); got != test.want {
			t.Errorf("%s\nis shown as %s\nwant        %s", test.text, got, test.want)
		}
	}
}

// TestRedactor_Payload: a payload without secrets is the same bytes, and one with some is
// still JSON, with its numbers as they were written.
func TestRedactor_Payload(t *testing.T) {
	r, err := New([]string{"card"})
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]string{
		`{ "url": "https://example.com/?a=1&b=<2>", "id": 12345678901234567890 }`: `{ "url": "https://example.com/?a=1&b=<2>", "id": 12345678901234567890 }`,
		`{"card":"4111","id":12345678901234567890,"url":"https://h/?a=1&b=2"}`:    `{"card":"•••","id":12345678901234567890,"url":"https://h/?a=1&b=2"}`,
		`{"headers":{"Authorization":"Bearer abcdefgh"}}`:                         `{"headers":{"Authorization":"•••"}}`,
		`{"url":"https://h/?api_key=hunter2"}`:                                    `{"url":"https://h/?api_key=•••"}`,
		`password: hunter2`:                                                       `password: •••`,
		`{"card":"4111"} {}`:                                                      `{"card":•••} {}`,
		"token=${env:TOKEN}\ncard: '${file:/a}'":                                  "token=${env:TOKEN}\ncard: '${file:/a}'",
		`token=${env:TOKEN}x`:                                                     `token=•••`,
		`GET /?token=${env:TOKEN}&card=4111`:                                      `GET /?token=${env:TOKEN}&card=•••`,
		``:                                                                        ``,
	} {
		if got := r.Payload([]byte(payload)); got != want {
			t.Errorf("%s is shown as %s, want %s", payload, got, want)
		}
	}
}

// TestDecode: a value is read up to a size and a depth, and brackets within texts do not count.
func TestDecode(t *testing.T) {
	deep := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	for text, wrong := range map[string]string{
		deep(64):                     "",
		deep(65):                     "nested more than 64 levels deep: want at most 64",
		deep(9000):                   "nested more than 64 levels deep",
		`{"a":` + deep(63) + `}`:     "",
		`{"a":` + deep(64) + `}`:     "nested more than 64 levels deep",
		`["` + deep(5000) + `"]`:     "",
		`["\"` + deep(5000) + `\\"]`: "",
		strings.Repeat("[],", 900):   "want one value",
		`[]]`:                        "want one value",
		`{} {}`:                      "want one value",
		`"` + deep(10_000) + `"`:     "JSON of 20002 bytes: want at most 20000",
	} {
		_, err := Decode([]byte(text), 20_000)
		switch {
		case wrong == "" && err != nil:
			t.Errorf("%.40s is refused: %v", text, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%.40s: %v, want %q", text, err, wrong)
		}
	}
}

// Query hides a key in a URL, whatever is around the URL. Query of its result changes nothing.
func FuzzQuery(target *testing.F) {
	f := fuzzseed.More(target)
	for _, seed := range [][2]string{{"", ""}, {"?api_key=${env:A}&", "&q=1"}, {"key=", "#there"}, {"%", "=${file:/a}"}} {
		f.Add(seed[0], seed[1])
	}
	const secret = "hunter2hunter2"
	f.Fuzz(func(t *testing.T, before, after string) {
		text := before + "?api_key=" + secret + "&" + after
		shown := Query(text)
		if !strings.Contains(before+after, secret) && strings.Contains(shown, secret) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		if again := Query(shown); again != shown {
			t.Errorf("%q is shown as %q, and that as %q", text, shown, again)
		}
	})
}

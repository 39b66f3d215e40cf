package canonical_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/internal/testutil/fuzzseed"
)

// Each of the lists is one host, and the first its one form.
var spellings = [][]string{
	{
		"localhost", "LOCALHOST", "localhost.", "ｌｏｃａｌｈｏｓｔ", "local\u200bhost", "local\u00adhost", "ⓛocalhost", "localhost。", "ℒocalhost",
	},
	{
		"127.0.0.1", "127.0.0.1.", "１２７.０.０.１", "127。0。0。1", "127\uff0e0.0.1", "127.1", "127.0.1", "2130706433", "0x7f.1", "0X7F000001", "0177.0.0.01", "0x7f.0x0.0x0.0x1",
		"[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "[::ffff:127.0.0.1%25lo]",
	},
	{"::1", "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::0.0.0.1]", "[::1%25lo]", "[::1%251]"},
	{"2001:db8::a", "[2001:DB8::A]", "[2001:db8:0:0::00a]"},
	{"xn--mnchen-3ya.x", "münchen.x", "MÜNCHEN.x", "mu\u0308nchen.x", "XN--MNCHEN-3YA.X", "münchen.x.", "münchen．x", "ｍünchen.x"},
	{"xn--strae-oqa.x", "straße.x"},
	{"a_b.example", "A_B.example"},
	{"1.2.3.4.5", "1.2.3.4.5."},
	{"256.1.1.1"},
	{"09.1"},
	{"0xg.1"},
	{"1..2"},
	{"4294967296"},
}

// dialled is the host that net/http connects to for a URL.
func dialled(text string) (string, error) {
	var host string
	t := &http.Transport{DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
		host, _, _ = net.SplitHostPort(address)
		return nil, errors.New("no network")
	}}
	r, err := http.NewRequest(http.MethodGet, text, http.NoBody)
	if err != nil {
		return "", err
	}
	_, _ = t.RoundTrip(r)
	return host, nil
}

// of is the one form of a URL's host.
func of(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", err
	}
	return canonical.Host(u.Hostname())
}

// All spellings of a host are one: as the URL has it, and as net/http dials it.
func TestHost_Spellings(t *testing.T) {
	for _, host := range spellings {
		for _, name := range host {
			text := "http://" + name + "/"
			if name == "::1" || name == "2001:db8::a" {
				text = "http://[" + name + "]/"
			}
			if got, err := of(text); err != nil || got != host[0] {
				t.Errorf("%s is %q, %v; want %q", text, got, err, host[0])
			}
			if to, err := dialled(text); err != nil || to == "" {
				t.Errorf("%s: %v", text, err)
			} else if got, err := canonical.Host(to); err != nil || got != host[0] {
				t.Errorf("%s: net/http dials %q, which is %q, %v; want %q", text, to, got, err, host[0])
			}
		}
	}
}

func TestHost_Invalid(t *testing.T) {
	for _, name := range []string{"a\u200dü.x", "\u0301.x", "☕\u202e.x", "xn--ü.x"} {
		if got, err := canonical.Host(name); err == nil {
			t.Errorf("%q is %q, want an error", name, got)
		}
	}
}

// What is one form stays it, and no URL is of one host here and of another to net/http.
func FuzzHost(target *testing.F) {
	f := fuzzseed.More(target)
	for _, host := range spellings {
		for _, name := range host {
			f.Add("http://" + name + ":8080/a@b?c#d")
		}
	}
	for _, text := range []string{"http://a@b/", `http://a\@b/`, "http://a:80:90/", "http://%6cocalhost/", "http://%EF%BD%8Cocalhost/", "http://[::1]x/", "//h/", "http://h%00/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		host, err := of(text)
		if err != nil || host == "" {
			return
		}
		if again, err := canonical.Host(host); again != host {
			t.Errorf("%q is %q, and that is %q, %v", text, host, again, err)
		}
		if to, err := dialled(text); err == nil && to != "" {
			if called, err := canonical.Host(to); called != host {
				t.Errorf("%q is of %q, and net/http dials %q, %v", text, host, to, err)
			}
		}
	})
}

func TestPercentEncoding(t *testing.T) {
	dollar := func(c byte) bool { return c == '$' }
	for text, want := range map[string]string{
		"":           "",
		"a%62%2fc":   "ab%2Fc", // what is plain is decoded, all else has capital digits
		"a$%24":      "a%24%24",
		"100%":       "100%25",
		"%zz%2":      "%25zz%252",
		"%2541":      "%2541", // and not %41, which would be decoded next time
		"\xff%e3%83": "\xff%E3%83",
	} {
		got := canonical.PercentEncoding(text, canonical.IsAlphanumeric, dollar)
		if again := canonical.PercentEncoding(got, canonical.IsAlphanumeric, dollar); got != want || again != got {
			t.Errorf("%q is %q, and that is %q; want %q", text, got, again, want)
		}
	}
}

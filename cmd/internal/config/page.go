package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/tasks"
)

// Page is the page section: authentication and permissions of the page that "worker run --listen"
// serves.
type Page struct {
	// Token is the password of the page, at least 8 characters. If there is none, only browsers on
	// the same machine can open the page.
	Token Secret `yaml:"token"`
	// HTTPS means that browsers use https, because a proxy in front of the page has a certificate.
	HTTPS bool `yaml:"https"`
	// OpenMetrics lets everybody read /metrics and /readyz.
	OpenMetrics bool `yaml:"open_metrics"`
	// ReadOnly disables all actions that change something.
	ReadOnly bool `yaml:"read_only"`
	// Redact are further names of payload fields and headers whose values are secrets. The page and
	// exported results hide the values. After a redirect to another host, calls leave the headers
	// out. In a name, * stands for any text.
	Redact []string `yaml:"redact"`
}

// Secret is a text, or a reference to a text: ${env:NAME} to an environment variable, ${file:/path}
// to a file.
type Secret string

// UnmarshalText reads a secret. It does not resolve a reference.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	if strings.HasPrefix(string(text), "${") && !tasks.IsReference(string(text)) {
		return fmt.Errorf("%q: want ${env:NAME} or ${file:/path}, or the text itself", text)
	}
	return nil
}

// Validate reports a secret of less than 8 characters, without showing it. The empty secret is
// valid.
func (s Secret) Validate() error {
	if s != "" && utf8.RuneCountInString(string(s)) < 8 {
		return errors.New("want at least 8 characters")
	}
	return nil
}

// API is the api section: authentication of the programs that add jobs at the address of
// "worker run --listen".
type API struct {
	// Token is the password of the programs that add jobs, at least 8 characters, and not that of the
	// page. Who has it can add jobs, as enqueue does, and can do nothing else. Required.
	Token Secret `yaml:"token"`
}

func (d *decoder) checkAPI(a *API) {
	if d.has("api") && a.Token == "" {
		d.errorf("api.token", "missing: want the password of the programs that add jobs, such as ${env:HEADGATE_API_TOKEN}")
	}
	d.checkToken("api.token", &a.Token)
}

// checkToken resolves a token, and adds an error if the token is too short or is not known here.
func (d *decoder) checkToken(path string, token *Secret) {
	if err := token.Validate(); err != nil {
		d.errorf(path, "%v", err)
	}
	value, err := tasks.Secret(string(*token))
	if d.wantOnMachine(err == nil, path, "%v", err); err == nil {
		*token = Secret(value)
	}
}

func (d *decoder) checkPage(p *Page) {
	d.checkToken("page.token", &p.Token)
	for i, name := range p.Redact {
		d.want(name != "" && !strings.ContainsAny(name, "[]\\\n"), indexed("page.redact", i), "%q: want the name of a field or header, where * stands for any text", name)
	}
}

// ListenAddress adds the host 127.0.0.1 to an address without a host, such as :9090. An empty text
// stays empty.
func ListenAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(text)
	if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n > 65535 {
		return "", fmt.Errorf("%q: want HOST:PORT or :PORT, such as :9090", text)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

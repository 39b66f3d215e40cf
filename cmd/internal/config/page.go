package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/tasks"
)

// Page says who may see the page of "worker run --listen", and what they may see and change.
type Page struct {
	// Token lets a browser in. It has at least 8 characters. Without a token, or a user and a
	// password, only browsers on the same machine are let in.
	Token Secret `yaml:"token"`
	// User lets a browser in, with a password.
	User string `yaml:"user"`
	// Password is the user's password, of at least 8 characters.
	Password Secret `yaml:"password"`
	// HTTPS says that browsers connect by https through a proxy.
	HTTPS bool `yaml:"https"`
	// TLSCert is a PEM file with the certificate, for a worker that serves https itself.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is a PEM file with the certificate's key.
	TLSKey string `yaml:"tls_key"`
	// OpenMetrics lets everybody read /metrics and /readyz.
	OpenMetrics bool `yaml:"open_metrics"`
	// ReadOnly removes everything that changes something.
	ReadOnly bool `yaml:"read_only"`
	// Redact are names of further secret fields of payloads and headers. They are not shown, and no
	// redirect takes such a header to another host. In a name * stands for any text.
	Redact []string `yaml:"redact"`
}

// Open reports whether browsers on other machines can be let in.
func (p Page) Open() bool { return p.Token != "" || p.User != "" }

// Secret is a text, or a reference to it: ${env:NAME} is the value of an environment variable,
// ${file:/path} the content of a file.
type Secret string

// UnmarshalText reads a secret. It does not resolve a reference.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	if strings.HasPrefix(string(text), "${") && !tasks.IsReference(string(text)) {
		return fmt.Errorf("%q: want ${env:NAME} or ${file:/path}, or the text itself", text)
	}
	return nil
}

// resolve replaces a reference by its value. Errors go to Config.Machine.
func (d *decoder) resolve(path string, s *Secret) {
	value, err := tasks.Secret(string(*s))
	d.machine(err == nil, path, "%v", err)
	if err == nil {
		*s = Secret(value)
	}
}

// minSecret is the least number of characters of a token or password.
const minSecret = 8

// Check reports invalid fields. It shows no secret.
func (p Page) Check(report func(field, problem string)) {
	short := func(field string, secret Secret) {
		if secret != "" && utf8.RuneCountInString(string(secret)) < minSecret {
			report(field, fmt.Sprintf("want at least %d characters", minSecret))
		}
	}
	short("token", p.Token)
	short("password", p.Password)
	alone := func(field, value, shown, other, otherValue string) {
		if value != "" && otherValue == "" {
			report(field, shown+"want a "+other+" beside it")
		}
	}
	alone("user", p.User, fmt.Sprintf("%q: ", p.User), "password", string(p.Password))
	alone("password", string(p.Password), "", "user", p.User)
	alone("tls_cert", p.TLSCert, fmt.Sprintf("%q: ", p.TLSCert), "tls_key", p.TLSKey)
	alone("tls_key", p.TLSKey, fmt.Sprintf("%q: ", p.TLSKey), "tls_cert", p.TLSCert)
}

func (d *decoder) checkPage(p *Page) {
	p.Check(func(field, problem string) { d.errorf("page."+field, "%s", problem) })
	for i, name := range p.Redact {
		d.want(name != "" && !strings.ContainsAny(name, "[]\\\n"), indexed("page.redact", i), "%q: want the name of a field or header, where * stands for any text", name)
	}
	d.resolve("page.token", &p.Token)
	d.resolve("page.password", &p.Password)
}

// ListenAddress adds this machine's address to a port alone. An empty text stays empty.
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

package config

import (
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
	// Token signs a browser in. It has at least 8 characters. Without a token, only browsers on the
	// same machine can open the page.
	Token Secret `yaml:"token"`
	// HTTPS means that browsers connect by https, through a proxy in front of the page.
	HTTPS bool `yaml:"https"`
	// TLSCert is a PEM file with the certificate, for a worker that serves https itself.
	TLSCert string `yaml:"tls_cert"`
	// TLSKey is a PEM file with the certificate's key.
	TLSKey string `yaml:"tls_key"`
	// OpenMetrics lets everybody read /metrics and /readyz.
	OpenMetrics bool `yaml:"open_metrics"`
	// ReadOnly disables all actions that change something.
	ReadOnly bool `yaml:"read_only"`
	// Redact are further names of payload fields and headers whose values are secrets. The values
	// are hidden, and no redirect takes such a header to another host. In a name * stands for any
	// text.
	Redact []string `yaml:"redact"`
}

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

// resolve replaces a reference by its value. Errors go to Config.MachineErrors.
func (d *decoder) resolve(path string, s *Secret) {
	value, err := tasks.Secret(string(*s))
	d.machine(err == nil, path, "%v", err)
	if err == nil {
		*s = Secret(value)
	}
}

// minToken is the least number of characters of a token.
const minToken = 8

// Check reports invalid fields. It shows no secret.
func (p Page) Check(report func(field, problem string)) {
	if p.Token != "" && utf8.RuneCountInString(string(p.Token)) < minToken {
		report("token", fmt.Sprintf("want at least %d characters", minToken))
	}
	if p.TLSCert != "" && p.TLSKey == "" {
		report("tls_cert", fmt.Sprintf("%q: want a tls_key beside it", p.TLSCert))
	}
	if p.TLSKey != "" && p.TLSCert == "" {
		report("tls_key", fmt.Sprintf("%q: want a tls_cert beside it", p.TLSKey))
	}
}

func (d *decoder) checkPage(p *Page) {
	p.Check(func(field, problem string) { d.errorf("page."+field, "%s", problem) })
	for i, name := range p.Redact {
		d.want(name != "" && !strings.ContainsAny(name, "[]\\\n"), indexed("page.redact", i), "%q: want the name of a field or header, where * stands for any text", name)
	}
	d.resolve("page.token", &p.Token)
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

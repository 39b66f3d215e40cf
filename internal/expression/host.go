package expression

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/expr-lang/expr"

	"github.com/headgate/headgate/internal/hostname"
)

var hostFunction = expr.Function("host", func(args ...any) (any, error) {
	return host(args[0])
}, func(any) string { return "" })

// host is the host name of an absolute URL, without its port, in the form in which all
// ways to write it count as one: see package hostname.
func host(value any) (string, error) {
	text, ok := value.(string)
	if value == nil {
		return "", errors.New("there is no URL to take the host of")
	}
	if !ok {
		return "", fmt.Errorf("host wants a URL as text, not %s", describe(value))
	}
	shown := text[:min(len(text), 100)]
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("%q is not a URL", shown)
	}
	name, err := hostname.Of(u.Hostname())
	if err != nil {
		return "", err
	}
	if u.Scheme == "" || name == "" {
		return "", fmt.Errorf("%q has no host: want an absolute URL such as https://example.com/", shown)
	}
	return name, nil
}

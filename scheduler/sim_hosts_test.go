package scheduler

import (
	"slices"

	"github.com/headgate/headgate/internal/canonical"
)

// simHosts are keys of limits, each in all forms that jobs name it in: the first is the one
// that counts.
var simHosts = [][]string{
	{""},
	{"xn--mnchen-3ya.x", "m\u00fcnchen.x", "M\u00dcNCHEN.x.", "XN--mnchen-3YA.X"},
	{"::1", "0:0:0:0:0:0:0:1", "0::1"},
}

// simHost draws a key.
func (w *sim) host() string { return simHosts[w.rand.IntN(len(simHosts))][0] }

// keyOf is the key that a rule makes of a host in one of its forms.
func keyOf(host string, form int) string {
	forms := simHosts[slices.IndexFunc(simHosts, func(forms []string) bool { return forms[0] == host })]
	key, err := canonical.Host(forms[form%len(forms)])
	if err != nil {
		panic(err)
	}
	return key
}

// hostOf is the host that a key stands for.
func hostOf(key string) string {
	for _, forms := range simHosts {
		if slices.Contains(forms, key) {
			return forms[0]
		}
	}
	return key
}

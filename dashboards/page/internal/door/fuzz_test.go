package door

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/mutate"
)

// No text is a session but one that was signed, in its one spelling.
func FuzzSession(target *testing.F) {
	f := mutate.More(target)
	s := newSessions(Options{Token: "correct horse battery staple"})
	signed := s.sign(time.Unix(1785555555, 0), "number", "user")
	for _, seed := range []string{signed[:len(signed)-1], signed + "A", strings.ToUpper(signed), "1.2.3.4", "....", "-1.a.dXNlcg."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, session string) {
		if s.proves(session) != (session == signed) {
			t.Errorf("%q proves true: %t", session, session != signed)
		}
		_, _ = live(session)
	})
}

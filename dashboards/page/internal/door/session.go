package door

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/scrypt"
)

// sessionLength is a working day: nobody types a token twice in it, and a browser that
// is left open is out by the next.
const sessionLength = 12 * time.Hour

// sessions signs sessions and knows its own again.
//
// A session is kept nowhere: it is a cookie with its end, its user and a signature.
// So it works in every replica and over restarts, and it cannot be ended one by one,
// only all with another token or password.
//
// Who steals one can try elsewhere, at leisure, which token makes its signature. So it
// is signed with the token stretched: each try costs as much as newSessions does.
type sessions struct {
	key []byte // the same in all replicas

	mu sync.Mutex
	// known has sums of sessions that have proved true. They need no look any more, so
	// they open the page also while others from the same address guess.
	known map[[sha256.Size]byte]struct{}
}

// maxKnown bounds the sessions that are known. Those forgotten prove true once more.
const maxKnown = 1000

// newSessions makes the key from the credentials, in about a tenth of a second and
// 32 MiB (scrypt, RFC 7914). Its salt is what replicas share without being told: a
// table made once serves against all scopes of that name, so length still matters.
func newSessions(o Options) *sessions {
	key, err := scrypt.Key([]byte(o.Token+"\x00"+o.User+"\x00"+o.Password), []byte("headgate page\x00"+o.Scope), 1<<15, 8, 1, 32)
	if err != nil {
		panic(err) // of numbers that stand above
	}
	return &sessions{key: key, known: map[[sha256.Size]byte]struct{}{}}
}

// cookieName keeps pages of one host apart by their ports, since cookies do not: else
// they would sign each other's users out. It tells nothing of the token.
func cookieName(r *http.Request) string {
	port, err := strconv.ParseUint((&url.URL{Host: r.Host}).Port(), 10, 16)
	if err != nil {
		return "headgate"
	}
	return "headgate-" + strconv.FormatUint(port, 10)
}

// begin is a new session. A number that nobody can guess makes it another one than all
// before, so that only who has it can say it again.
func (s *sessions) begin(user string, until time.Time) string {
	session := s.sign(until, rand.Text(), user)
	s.know(session)
	return session
}

// sign is a session: until when in Unix seconds, its number, whose in base64, so that
// no user's name has a dot in it, and a signature of them (HMAC-SHA256).
func (s *sessions) sign(until time.Time, number, user string) string {
	text := strconv.FormatInt(until.Unix(), 10) + "." + number + "." + base64.RawURLEncoding.EncodeToString([]byte(user))
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// read is what a session says, which proves nothing.
func read(session string) (until time.Time, number, user string, ok bool) {
	parts := strings.Split(session, ".")
	if len(parts) != 4 {
		return time.Time{}, "", "", false
	}
	seconds, err := strconv.ParseInt(parts[0], 10, 64)
	decoded, wrong := base64.RawURLEncoding.DecodeString(parts[2])
	return time.Unix(seconds, 0), parts[1], string(decoded), err == nil && wrong == nil
}

// proves reports whether a session was signed here: what it says is signed once more
// and must come out the same, to the last byte. So a second spelling of the same
// name or number is refused, too.
func (s *sessions) proves(session string) bool {
	until, number, user, ok := read(session)
	if !ok || !hmac.Equal([]byte(s.sign(until, number, user)), []byte(session)) {
		return false
	}
	s.know(session)
	return true
}

func (s *sessions) know(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	s.known[sha256.Sum256([]byte(session))] = struct{}{}
}

func (s *sessions) knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known[sha256.Sum256([]byte(session))]
	return ok
}

// live says whose a session is that is true, unless it has ended.
func live(session string) (user string, code int) {
	if until, _, user, _ := read(session); time.Now().Before(until) {
		return user, 0
	}
	return "", http.StatusUnauthorized
}

// setCookie gives the browser a session. The cookie is for this site alone, for the
// folder of the page, and out of reach of scripts. As it is Strict, a link from another
// site arrives without it and is shown the sign-in. Secure it is where the browser
// speaks TLS, which of a proxy nobody knows but who has set it up.
func (d *Door) setCookie(w http.ResponseWriter, r *http.Request, session string, length time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: session, MaxAge: int(length / time.Second),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil || d.HTTPS,
	})
}

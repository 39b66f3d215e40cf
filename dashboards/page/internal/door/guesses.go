package door

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/headgate/headgate/throttle"
)

const (
	wrongDelay = time.Second // what a wrong guess costs
	// wrongTold is how often wrong guesses are logged.
	wrongTold = time.Minute
)

// How many wrong guesses may wait for their answer: of one address, and of all.
var (
	wrongHere  = throttle.Limit{Name: "here", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 8, Per: wrongDelay}}
	wrongInAll = throttle.Limit{Name: "in-all", Kind: throttle.SlidingLog, Rate: throttle.Rate{N: 64, Per: wrongDelay}}
)

// guesses is the one door that all credentials come through: tokens, passwords, and
// sessions that are not known. A wrong one has its sender wait, and while as many as
// may wait do, no other from there is looked at, right or wrong: else whoever asks fast
// enough could tell the right one from its answer. So eight a second are looked at from
// one address and 64 from all the world. Who has eight addresses can thereby keep
// others from signing in; who has signed in stays.
type guesses struct {
	log *slog.Logger

	mu      sync.Mutex
	waiting throttle.Local // of each address, and of all
	wrong   int            // since they were last logged
	unseen  int            // were not looked at since then
	last    string         // the address of the last of both
	told    *time.Timer    // until they are logged; nil where there are none
}

func newGuesses(log *slog.Logger) *guesses {
	g := &guesses{log: log}
	if err := g.waiting.Define(context.Background(), wrongHere, wrongInAll); err != nil {
		panic(err) // of limits that stand above
	}
	return g
}

// look says whose a request is as right does, which must be quick, or the code to
// refuse it with: 401 if it was wrong, and then only after a second, or 429 if it was
// not looked at.
func (g *guesses) look(r *http.Request, right func() (user string, ok bool)) (user string, code int) {
	if user, code = g.try(r, right); code != http.StatusUnauthorized {
		return user, code
	}
	select {
	case <-r.Context().Done():
	case <-time.After(wrongDelay):
	}
	return "", code
}

// try is look without the wait. The place of a wrong guess is taken for the whole time,
// also by who hangs up.
func (g *guesses) try(r *http.Request, right func() (user string, ok bool)) (user string, code int) {
	places := []throttle.Need{{Limit: wrongHere.Name, Key: origin(r)}, {Limit: wrongInAll.Name}}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, place := range places {
		if d, err := g.waiting.Peek(r.Context(), place.Limit, place.Key); err != nil || d.Remaining == 0 {
			g.unseen++
			g.count(r)
			return "", http.StatusTooManyRequests
		}
	}
	if user, ok := right(); ok {
		return user, 0
	}
	_, _ = g.waiting.AllowAll(r.Context(), places...) // there is room, as was seen
	g.wrong++
	g.count(r)
	return "", http.StatusUnauthorized
}

// count has wrong guesses logged a minute after the first: a line for each would fill
// the log's disk at the guesser's pace.
func (g *guesses) count(r *http.Request) {
	g.last = r.RemoteAddr
	if g.told == nil {
		g.told = time.AfterFunc(wrongTold, g.tell)
	}
}

// tell logs the wrong guesses, if there were any.
func (g *guesses) tell() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.told == nil {
		return
	}
	g.told.Stop()
	g.log.Warn("wrong attempts to sign in to the page", "wrong", g.wrong, "not looked at", g.unseen, "last from", g.last)
	g.wrong, g.unseen, g.told = 0, 0, nil
}

// origin is where a request comes from: an address, or of IPv6 the network of one
// customer, who has all of its addresses. Of what comes by a socket it is one place.
func origin(r *http.Request) string {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr := from.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}

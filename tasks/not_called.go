package tasks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/canonical"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/throttle"
)

// ErrNotCalled is wrapped by the error of an attempt that ended before its call could leave:
// the payload is malformed, the address is not allowed, a host has no address or does not take
// the connection, a secret is missing, a command does not exist. The upstream counts no such call.
// From the moment when a connection is there a request counts as sent.
var ErrNotCalled = errors.New("no call was made")

// notCalled is an error that wraps ErrNotCalled, with the text of the error that it is.
type notCalled struct{ error }

// Unwrap lets errors.Is and errors.As see the error itself.
func (e notCalled) Unwrap() error { return e.error }

// Is reports that the error is ErrNotCalled, too.
func (notCalled) Is(target error) bool { return target == ErrNotCalled }

// malformed is the error of a payload that the handler cannot read. The payload stays as it
// is, so asynq archives the job.
func malformed(err error) error {
	return notCalled{fmt.Errorf("malformed payload: %w: %w", err, asynq.SkipRetry)}
}

// Check reports why ProcessTask would archive the task without a call, as far as its payload
// and the handler tell. It makes no call, so a server's rules can use it before the job takes permits.
func (h *HTTPHandler) Check(task *asynq.Task) error {
	call, err := parse[HTTPRequest](task.Payload())
	if err != nil {
		return presentable(malformed(err))
	}
	return presentable(h.checkAddress(call.URL))
}

// Check reports why ProcessTask would archive the task: see HTTPHandler.Check.
func (h *CrawlHandler) Check(task *asynq.Task) error {
	page, err := parse[CrawlFetch](task.Payload())
	if err != nil {
		return presentable(malformed(err))
	}
	if h.HTTP == nil {
		return nil
	}
	return presentable(h.HTTP.checkAddress(page.URL))
}

// Check reports why ProcessTask would archive the task: see HTTPHandler.Check.
func (h *ExecHandler) Check(task *asynq.Task) error {
	_, _, err := h.command(task)
	return presentable(err)
}

// checkAddress reports an address that a URL has in place of a name and that the handler may
// not call. A name says nothing before it is looked up. Through a proxy the proxy's address counts.
func (h *HTTPHandler) checkAddress(text string) error {
	u, err := url.Parse(text)
	if err != nil || h.Proxy != nil || h.Transport != nil {
		return nil
	}
	host, err := canonical.Host(u.Hostname())
	if err != nil {
		return nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil || h.allows(a) {
		return nil
	}
	return notCalled{fmt.Errorf("%s: %w: %w", text, &AddressError{Address: a}, asynq.SkipRetry)}
}

// giveBack gives back what a job has taken that made no call. An archived job gives back all of it.
// A job that will be retried leaves what it took of a funnel or a token bucket:
// these set the pace, and a host that is down must not be tried faster than that.
func (f *Feedback) giveBack(ctx context.Context, err error) {
	archived := errors.Is(err, asynq.SkipRetry)
	if !archived && f.Limiter == nil { // which knows the kinds
		return
	}
	d, _ := scheduler.GetDecision(ctx)
	given := map[string]bool{}
	for _, t := range d.Taken {
		if given[t.Limit] {
			continue
		}
		given[t.Limit] = true
		if !archived {
			l, _, err := f.Limiter.Internals().Key(ctx, t.Limit, t.Key)
			if err == nil && slices.Contains([]throttle.Kind{throttle.Funnel, throttle.TokenBucket, throttle.Concurrency}, l.Kind) {
				continue
			}
		}
		if err := scheduler.Settle(ctx, t.Limit, 0); err != nil {
			f.log().Warn("permits of a job that made no call stay used", "limit", t.Limit, "error", err)
		}
	}
}

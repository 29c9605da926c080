package apiproxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// endTimeout is how long a hub that does not read may hold up the end of a request that is no longer allowed.
const endTimeout = 5 * time.Second

// goesOn reports whether a request can go on for as long as the hub likes: a watch, a log, a terminal, what is proxied, and what is
// no resource, such as a profile.
func goesOn(q *policy.Request) bool {
	if !q.IsResourceRequest || q.Verb == "watch" {
		return true
	}
	switch q.Subresource {
	case "log", "exec", "attach", "portforward", "proxy":
		return true
	default:
		return false
	}
}

// whileAllowed returns a context that ends when the policy does not allow a request any more, with an *apihttp.Error as its cause.
// changed is the policy's from before it allowed the request. The caller must call end, which returns that error, if there is one.
func (h *Handler) whileAllowed(parent context.Context, w http.ResponseWriter, a *auditRecord, changed <-chan struct{},
) (ctx context.Context, end func() *apihttp.Error) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	control := http.NewResponseController(w)
	q, first := a.request, a.decision
	go func() {
		defer close(done)
		if why := h.awaitDenial(ctx, q, first, changed); why != nil {
			cancel(why)
			_ = control.SetWriteDeadline(time.Now().Add(endTimeout)) // fails only if it is closed
		}
	}()
	return ctx, func() *apihttp.Error {
		cancel(nil)
		<-done
		why := denial(ctx)
		if why != nil {
			_ = control.SetWriteDeadline(time.Time{}) // for the next request
		}
		return why
	}
}

// awaitDenial decides again whenever the policy has changed, and returns why a request is not allowed any more, nil at the end of
// the context. Who cannot be told that it still is allowed is not let on: the caller may ask anew.
func (h *Handler) awaitDenial(ctx context.Context, q *policy.Request, first policy.Decision, changed <-chan struct{}) *apihttp.Error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		changed = h.options.Policy.Changed()
		decision, err := h.options.Policy.Decide(ctx, q)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the request is over, and so is the question
		}
		switch {
		case err != nil:
			return decisionError(err)
		case !decision.Allowed:
			return decision.Forbidden(q)
		case decision.Impersonates != first.Impersonates:
			return apihttp.Errorf(http.StatusForbidden, "forbidden: the policy's impersonation has changed: ask again")
		}
	}
}

// denial returns why a context of whileAllowed has ended, nil if it has not or for another reason.
func denial(ctx context.Context) *apihttp.Error {
	why := new(apihttp.Error)
	if errors.As(context.Cause(ctx), &why) {
		return why
	}
	return nil
}

// abortIfDenied aborts a response that has ended because the request is no longer allowed, so that nobody takes it for the whole. The proxy
// does that if its connection to the API server breaks; but over TLS that is told first, and may finish its answer before it is closed.
func (a *auditRecord) abortIfDenied() {
	if a.code != http.StatusSwitchingProtocols && denial(a.ctx) != nil {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way to abort a response
	}
}

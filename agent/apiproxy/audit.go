package apiproxy

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// The outcomes of a request.
const (
	allowed = "allowed" // it was passed on and answered, whatever the answer
	denied  = "denied"  // it was not passed on, because of what it was
	failed  = "failed"  // it was not answered, or not to its end
)

// longest is how much is written down of a text that the caller chose.
const longest = 256

// attempt is one request on its way, and all that is written down of it. It is the request's http.ResponseWriter.
type attempt struct {
	handler  *Handler
	writer   http.ResponseWriter
	started  time.Time
	header   http.Header
	request  *policy.Request // nil if it could not be read
	query    *url.URL
	decision policy.Decision
	outcome  string
	code     int
	err      error
}

// Header implements http.ResponseWriter.
func (a *attempt) Header() http.Header { return a.writer.Header() }

// Write implements http.ResponseWriter.
func (a *attempt) Write(b []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	return a.writer.Write(b)
}

// WriteHeader implements http.ResponseWriter.
func (a *attempt) WriteHeader(code int) {
	if code >= http.StatusOK {
		a.code = code
	}
	a.writer.WriteHeader(code)
}

// Hijack implements http.Hijacker, for upgrades.
func (a *attempt) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.code = http.StatusSwitchingProtocols
	return http.NewResponseController(a.writer).Hijack()
}

// Unwrap is for http.ResponseController.
func (a *attempt) Unwrap() http.ResponseWriter { return a.writer }

// audit writes down what became of a request: what changes something, runs something or is denied at level info, the rest,
// which is most, at level debug. No body is written down, and no value of a query: they may hold secrets. Of a command
// only is told how many words it has.
func (a *attempt) audit(ctx context.Context) {
	verb := "unknown"
	level := slog.LevelInfo
	if a.outcome == failed && a.err == nil && a.code != 0 && ctx.Err() != nil {
		a.outcome = allowed // a caller that has seen enough of a log or a watch hangs up
	}
	if a.request != nil {
		verb = a.request.Verb
		if a.outcome == allowed && reads(a.request) {
			level = slog.LevelDebug
		}
	}
	a.handler.requests.WithLabelValues(verb, a.outcome, strconv.Itoa(a.code/100)+"xx").Inc()
	logger := a.handler.options.Logger
	if !logger.Enabled(ctx, level) {
		return
	}
	logger.LogAttrs(ctx, level, "The hub's request", a.attributes(verb)...)
}

// reads says whether a request changes nothing and runs nothing.
func reads(q *policy.Request) bool {
	switch q.Verb {
	case "get", "list", "watch", "head":
		return q.Subresource == "" || q.Subresource == "log" || q.Subresource == "status" || q.Subresource == "scale"
	default:
		return false
	}
}

func (a *attempt) attributes(verb string) []slog.Attr {
	all := []slog.Attr{
		slog.String("caller", short(a.header.Get(apihttp.CallerHeader))), slog.String("verb", verb),
		slog.String("decision", a.outcome), slog.Int("code", a.code), slog.Duration("duration", time.Since(a.started)),
	}
	add := func(key, value string) {
		if value != "" {
			all = append(all, slog.String(key, short(value)))
		}
	}
	add("impersonates", a.header.Get("Impersonate-User"))
	if q := a.request; q != nil {
		if q.IsResourceRequest {
			add("group", q.APIGroup)
			add("resource", q.Resource)
			add("subresource", q.Subresource)
			add("namespace", q.Namespace)
			add("name", q.Name)
		} else {
			add("path", q.Path)
		}
		if q.Subresource == "exec" {
			all = append(all, slog.Int("command_words", len(a.query.Query()["command"])))
		}
	}
	add("application", a.decision.Application)
	add("reason", a.decision.Reason)
	if a.err != nil {
		add("error", a.err.Error())
	}
	return all
}

func short(text string) string {
	if len(text) <= longest {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:longest], len(text))
}

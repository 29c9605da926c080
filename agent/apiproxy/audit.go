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
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// The outcomes of a request.
const (
	allowed = "allowed" // forwarded, with any response
	denied  = "denied"  // not forwarded
	failed  = "failed"  // no response, or an incomplete one
)

// maxText bounds text that the caller chose, in bytes.
const maxText = 256

// auditRecord is what the audit log says of one request. It is the http.ResponseWriter of the request, to learn the status.
type auditRecord struct {
	handler  *Handler
	writer   http.ResponseWriter
	started  time.Time
	header   http.Header
	request  *policy.Request // nil if it could not be parsed
	query    *url.URL
	decision policy.Decision
	outcome  string
	code     int
	err      error
	ctx      context.Context //nolint:containedctx // while it is forwarded, and allowed; it lives as long as the request
}

// Header implements http.ResponseWriter.
func (a *auditRecord) Header() http.Header { return a.writer.Header() }

// Write implements http.ResponseWriter.
func (a *auditRecord) Write(b []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	return a.writer.Write(b)
}

// WriteHeader implements http.ResponseWriter.
func (a *auditRecord) WriteHeader(code int) {
	if code >= http.StatusOK {
		a.code = code
	}
	a.writer.WriteHeader(code)
}

// Hijack implements http.Hijacker, for upgrades.
func (a *auditRecord) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	a.code = http.StatusSwitchingProtocols
	conn, buffered, err := http.NewResponseController(a.writer).Hijack()
	if err == nil {
		// The proxy closes the other side only, and waits for a hub that does not read.
		context.AfterFunc(a.ctx, func() { _ = conn.Close() })
	}
	return conn, buffered, err
}

// Unwrap is for http.ResponseController.
func (a *auditRecord) Unwrap() http.ResponseWriter { return a.writer }

// log writes the audit log line: at level info for requests that change or run something, read Secrets or are denied, at level
// debug for the others, which are most. It has no body and no value of a query, because they may hold secrets: of a command only the
// number of its words.
func (a *auditRecord) log(ctx context.Context) {
	verb := "unknown"
	level := slog.LevelInfo
	if a.outcome == failed && a.err == nil && a.code != 0 && ctx.Err() != nil {
		a.outcome = allowed // a caller ends a log or a watch by closing the connection
	}
	if a.request != nil {
		verb = a.request.Verb
		if a.outcome == allowed && routine(a.request) {
			level = slog.LevelDebug
		}
	}
	a.handler.requests.WithLabelValues(verb, a.outcome, strconv.Itoa(a.code/100)+"xx").Inc()
	logger := a.handler.options.Logger
	if !logger.Enabled(ctx, level) {
		return
	}
	logger.LogAttrs(ctx, level, "Request from the hub", a.attributes(verb)...)
}

// routine reports whether a request changes nothing, runs nothing and reads no Secret.
func routine(q *policy.Request) bool {
	if q.APIGroup == "" && q.Resource == "secrets" {
		return false
	}
	switch q.Verb {
	case "get", "list", "watch", "head":
		return q.Subresource == "" || q.Subresource == "log" || q.Subresource == "status" || q.Subresource == "scale"
	default:
		return false
	}
}

func (a *auditRecord) attributes(verb string) []slog.Attr {
	all := []slog.Attr{
		slog.String("caller", truncate(a.header.Get(apihttp.CallerHeader))), slog.String("verb", verb),
		slog.String("decision", a.outcome), slog.Int("code", a.code), slog.Duration("duration", time.Since(a.started)),
	}
	add := func(key, value string) {
		if value != "" {
			all = append(all, slog.String(key, truncate(value)))
		}
	}
	// Who asks is what the hub says: nobody here can verify it.
	add("impersonated_user", a.header.Get("Impersonate-User"))
	add("impersonated_groups", strings.Join(a.header["Impersonate-Group"], ","))
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

func truncate(text string) string {
	if len(text) <= maxText {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:maxText], len(text))
}

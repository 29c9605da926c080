// Package callers answers two questions about a request: who is the caller, and which agent is meant?
//
// The answers follow from the client certificate, from a bearer token and from the path. What the caller may do at the agent
// is for the agent to decide.
package callers

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/apihttp"
)

// Tokens verifies bearer tokens.
type Tokens interface {
	// Verify returns the content of a valid token. Its error is for the sender.
	Verify(raw string) (token.Token, error)
}

// Agents knows which agents there are.
type Agents interface {
	// Known reports whether there is an agent of that name, connected or not.
	Known(name string) (bool, error)
}

// Options configures Callers.
type Options struct {
	// Trust verifies client certificates. Without it there is no Bind.
	Trust identity.Trust
	// Identify finds the agent that a certificate names.
	Identify *identity.Authenticator
	// Tokens is nil if no key is configured. Then every token is refused.
	Tokens Tokens
	// AllAgents are the callers that may reach every agent: common names, or SPIFFE IDs such as
	// spiffe://example.org/argocd. No agent may have such a name.
	AllAgents []string
	// Agents is asked whether the name of a certificate is an agent, if the token is for another one.
	Agents Agents
}

// Callers identifies callers. It is safe for concurrent use.
type Callers struct {
	options Options
	monitor *identity.CertificateMonitor
}

// New returns Callers.
func New(options Options) *Callers {
	return &Callers{options: options, monitor: identity.NewCertificateMonitor(options.Trust)}
}

// Call is a request that may be forwarded.
type Call struct {
	// Caller is for logs: the agent that the token names, or the name in the certificate.
	Caller string
	// Agent is the one that the request is for.
	Agent identity.Agent
	// Path is the path as the caller encoded it, without the prefix that names the agent.
	Path string
}

// certificate is whom a client certificate names.
type certificate struct {
	name      string         // for logs
	agent     identity.Agent // empty if it names none
	allAgents bool           // it names one of Options.AllAgents
	noAgent   error          // why it names no agent
}

// Admit returns the agent and the path of a request, if the peer may reach that agent. Its error is an *apihttp.Error.
func (c *Callers) Admit(r *http.Request, peer identity.Peer) (Call, error) {
	if r.Method == http.MethodConnect {
		return Call{}, apihttp.Errorf(http.StatusBadRequest, "method CONNECT: this is no forward proxy: configure it as the address of an API server")
	}
	if err := apihttp.CheckHeaders(r.Header); err != nil {
		return Call{}, err
	}
	if err := apihttp.CheckUpgrade(r); err != nil {
		return Call{}, err
	}
	target, err := ParseTarget(r.RequestURI)
	if err != nil {
		return Call{}, err
	}
	bearer, given := bearerToken(r.Header)
	named := c.certificateOf(r.Context(), peer)
	if given {
		return c.byToken(named, bearer, target)
	}
	return byCertificate(named, target)
}

// byToken takes the agent from the token. If the certificate names an agent, the token must be for the same one.
func (c *Callers) byToken(named *certificate, bearer string, target Target) (Call, error) {
	if c.options.Tokens == nil {
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "bearer tokens are not accepted here: set --jwt-key, or come with the agent's own certificate and no token")
	}
	claims, err := c.options.Tokens.Verify(bearer)
	switch {
	case err != nil:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "%v", err)
	case target.Agent != "" && target.Agent != claims.Agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the path for agent %q: leave the token out, or ask for its agent",
			claims.Agent, target.Agent)
	}
	if named.agent != "" && named.agent != claims.Agent {
		known, err := c.options.Agents.Known(string(named.agent))
		if err != nil {
			return Call{}, apihttp.Errorf(http.StatusBadGateway, "cannot find out whether the certificate's name %q is an agent's: %v", named.agent, err)
		}
		if known {
			return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the certificate is that of agent %q: "+
				"use the one's token with the one's certificate", claims.Agent, named.agent)
		}
	}
	return Call{Caller: string(claims.Agent), Agent: claims.Agent, Path: target.Path}, nil
}

// byCertificate takes the agent from the certificate, or from the path for a caller that may reach all agents.
func byCertificate(named *certificate, target Target) (Call, error) {
	switch {
	case named.allAgents && target.Agent == "":
		return Call{}, apihttp.Errorf(http.StatusBadRequest, "caller %q may reach every agent: say which by the path, %s<name>/…", named.name, agentsPrefix)
	case named.allAgents:
		return Call{Caller: named.name, Agent: target.Agent, Path: target.Path}, nil
	case errors.Is(named.noAgent, identity.ErrAgentName):
		return Call{}, apihttp.Errorf(http.StatusForbidden, "%v", named.noAgent)
	case named.noAgent != nil:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "%v", named.noAgent)
	case target.Agent != "" && target.Agent != named.agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the certificate is that of agent %q, which may not reach agent %q: "+
			"name the caller in --all-agents-callers if it is to reach every agent", named.agent, target.Agent)
	default:
		return Call{Caller: named.name, Agent: named.agent, Path: target.Path}, nil
	}
}

// certificateOf returns whom the certificate of a connection names.
func (c *Callers) certificateOf(ctx context.Context, peer identity.Peer) *certificate {
	conn := connectionOf(ctx)
	named := conn.certificate.Load()
	if named == nil {
		named = c.readCertificate(peer.Certificates[0])
		conn.certificate.Store(named)
	}
	return named
}

// readCertificate returns whom a certificate names.
func (c *Callers) readCertificate(x *x509.Certificate) *certificate {
	common, commonErr := identity.CommonName(x)
	id, idErr := identity.URI(x)
	named := &certificate{name: common}
	if commonErr != nil {
		named.name = id
	}
	switch {
	case commonErr == nil && slices.Contains(c.options.AllAgents, common):
		named.allAgents = true
	case idErr == nil && slices.Contains(c.options.AllAgents, id):
		named.name, named.allAgents = id, true
	default:
		if named.agent, named.noAgent = c.options.Identify.AgentOf(x); named.noAgent == nil {
			named.name = string(named.agent)
		}
	}
	return named
}

// bearerToken returns the bearer token, and whether there is one. Other authorization schemes are ignored, because the
// certificate authenticates the caller anyway.
func bearerToken(header http.Header) (bearer string, given bool) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

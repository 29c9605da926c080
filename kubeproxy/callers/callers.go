// Package callers answers two questions about a request: who asks, and which agent is meant?
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
	// Verify returns what a token says, or in words for its sender why it is not believed.
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
	// Identify tells which agent a certificate names.
	Identify *identity.Authenticator
	// Tokens is nil where no key is configured: then every token is refused.
	Tokens Tokens
	// AllAgents are the callers that may reach every agent: common names, or SPIFFE IDs as in spiffe://example.org/argocd.
	// No agent may have such a name.
	AllAgents []string
	// Agents is asked about the name of a certificate that comes with a token for another one.
	Agents Agents
}

// Callers tells who asks. It is safe for concurrent use.
type Callers struct {
	options Options
	monitor *identity.CertificateMonitor
}

// New returns Callers.
func New(options Options) *Callers {
	return &Callers{options: options, monitor: identity.NewCertificateMonitor(options.Trust)}
}

// Call is who asks whom for what.
type Call struct {
	// Caller is who asks, for people to read: the agent that a token names, or the certificate's name.
	Caller string
	// Agent is who is asked.
	Agent identity.Agent
	// Path is what for, as the caller encoded it, without the prefix that names the agent.
	Path string
}

// certificate is whom a client certificate names.
type certificate struct {
	name      string         // for people
	agent     identity.Agent // empty if it names none
	allAgents bool           // it names one of Options.AllAgents
	noAgent   error          // why it names no agent
}

// Admit returns what a request of the peer is about. Its errors are *apihttp.Error.
func (c *Callers) Admit(r *http.Request, peer identity.Peer) (Call, error) {
	if r.Method == http.MethodConnect {
		return Call{}, apihttp.Errorf(http.StatusBadRequest, "method CONNECT: this is no forward proxy: configure it as the address of an API server")
	}
	if err := apihttp.CheckHeaders(r.Header); err != nil {
		return Call{}, err
	}
	way, err := ParseTarget(r.RequestURI)
	if err != nil {
		return Call{}, err
	}
	bearer, given := bearerOf(r.Header)
	named := c.certificateOf(r.Context(), peer)
	if given {
		return c.byToken(named, bearer, way)
	}
	return byCertificate(named, way)
}

// byToken lets a token decide. It never widens what the certificate says: one that names an agent has no other one.
func (c *Callers) byToken(named *certificate, bearer string, way Way) (Call, error) {
	if c.options.Tokens == nil {
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "bearer tokens are not accepted here: set --jwt-key, or come with the agent's own certificate and no token")
	}
	says, err := c.options.Tokens.Verify(bearer)
	switch {
	case err != nil:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "%v", err)
	case way.Agent != "" && way.Agent != says.Agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the path for agent %q: leave the token out, or ask for its agent",
			says.Agent, way.Agent)
	}
	if named.agent != "" && named.agent != says.Agent {
		known, err := c.options.Agents.Known(string(named.agent))
		if err != nil {
			return Call{}, apihttp.Errorf(http.StatusBadGateway, "whether the certificate's name %q is that of an agent could not be told: %v", named.agent, err)
		}
		if known {
			return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the certificate is that of agent %q: "+
				"use the one's token with the one's certificate", says.Agent, named.agent)
		}
	}
	return Call{Caller: string(says.Agent), Agent: says.Agent, Path: way.Path}, nil
}

// byCertificate lets the certificate decide.
func byCertificate(named *certificate, way Way) (Call, error) {
	switch {
	case named.allAgents && way.Agent == "":
		return Call{}, apihttp.Errorf(http.StatusBadRequest, "caller %q may reach every agent: say which by the path, %s<name>/…", named.name, prefix)
	case named.allAgents:
		return Call{Caller: named.name, Agent: way.Agent, Path: way.Path}, nil
	case errors.Is(named.noAgent, identity.ErrAgentName):
		return Call{}, apihttp.Errorf(http.StatusForbidden, "%v", named.noAgent)
	case named.noAgent != nil:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "%v", named.noAgent)
	case way.Agent != "" && way.Agent != named.agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the certificate is that of agent %q, which may not reach agent %q: "+
			"name the caller in --all-agents-callers if it is to reach every agent", named.agent, way.Agent)
	default:
		return Call{Caller: named.name, Agent: named.agent, Path: way.Path}, nil
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

// bearerOf returns the bearer token, and whether one is given. Other kinds of authorization prove nothing here and are
// passed over, as the certificate is there.
func bearerOf(header http.Header) (bearer string, given bool) {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(rest), true
}

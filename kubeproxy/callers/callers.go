// Package callers answers two questions about a request: who asks, and which agent is meant?
//
// Proofs says what the caller's certificate proves, and for how long; Callers what follows from that, from a bearer token
// and from the path. What the caller may do at the agent is for the agent to say.
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
	// Identify tells which agent a certificate names.
	Identify *identity.Authenticator
	// Tokens is nil where no key is configured: then every token is refused.
	Tokens Tokens
	// Everywhere are the callers who may reach every agent: common names, or SPIFFE IDs as in spiffe://example.org/argocd.
	// No agent may have such a name.
	Everywhere []string
	// Agents is asked about the name of a certificate that comes with a token for another one.
	Agents Agents
}

// Callers tells who asks. It is safe for concurrent use.
type Callers struct {
	options Options
}

// New returns Callers.
func New(options Options) *Callers { return &Callers{options: options} }

// Call is who asks whom for what.
type Call struct {
	// Caller is who asks, for people to read: the agent that a token names, or the certificate's name.
	Caller string
	// Agent is who is asked.
	Agent identity.Agent
	// Path is what for, as the caller encoded it, without the prefix that names the agent.
	Path string
}

// holder is what a certificate says of who has it.
type holder struct {
	name       string         // for people
	agent      identity.Agent // empty when it names none, or one that may go everywhere
	everywhere bool
	nameless   error // why it names no agent
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
	has := c.remembered(r.Context(), peer)
	if given {
		return c.byToken(has, bearer, way)
	}
	return byCertificate(has, way)
}

// byToken lets a token decide. It never widens what the certificate says: one that names an agent has no other one.
func (c *Callers) byToken(has *holder, bearer string, way Way) (Call, error) {
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
	if has.agent != "" && has.agent != says.Agent {
		known, err := c.options.Agents.Known(string(has.agent))
		if err != nil {
			return Call{}, apihttp.Errorf(http.StatusBadGateway, "whether the certificate's name %q is that of an agent could not be told: %v", has.agent, err)
		}
		if known {
			return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the certificate is that of agent %q: "+
				"use the one's token with the one's certificate", says.Agent, has.agent)
		}
	}
	return Call{Caller: string(says.Agent), Agent: says.Agent, Path: way.Path}, nil
}

// byCertificate lets the certificate decide.
func byCertificate(has *holder, way Way) (Call, error) {
	switch {
	case has.everywhere && way.Agent == "":
		return Call{}, apihttp.Errorf(http.StatusBadRequest, "caller %q may reach every agent: say which by the path, %s<name>/…", has.name, prefix)
	case has.everywhere:
		return Call{Caller: has.name, Agent: way.Agent, Path: way.Path}, nil
	case errors.Is(has.nameless, identity.ErrAgentName):
		return Call{}, apihttp.Errorf(http.StatusForbidden, "%v", has.nameless)
	case has.nameless != nil:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "%v", has.nameless)
	case way.Agent != "" && way.Agent != has.agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the certificate is that of agent %q, which may not reach agent %q: "+
			"name the caller in --all-agents-callers if it is to reach every agent", has.agent, way.Agent)
	default:
		return Call{Caller: has.name, Agent: has.agent, Path: way.Path}, nil
	}
}

// remembered returns what a peer's certificate says, from memory where there is one of its connection.
func (c *Callers) remembered(ctx context.Context, peer identity.Peer) *holder {
	memory := memoryOf(ctx)
	has := memory.holder.Load()
	if has == nil { // a connection has one certificate as long as it lasts
		has = c.holderOf(peer.Certificates[0])
		memory.holder.Store(has)
	}
	return has
}

// holderOf returns what a certificate says.
func (c *Callers) holderOf(certificate *x509.Certificate) *holder {
	common, commonErr := identity.CommonName(certificate)
	id, idErr := identity.URI(certificate)
	has := &holder{name: common}
	if commonErr != nil {
		has.name = id
	}
	switch {
	case commonErr == nil && slices.Contains(c.options.Everywhere, common):
		has.everywhere = true
	case idErr == nil && slices.Contains(c.options.Everywhere, id):
		has.name, has.everywhere = id, true
	default:
		if has.agent, has.nameless = c.options.Identify.AgentOf(certificate); has.nameless == nil {
			has.name = string(has.agent)
		}
	}
	return has
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

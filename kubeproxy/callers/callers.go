// Package callers answers two questions about a request: who is the caller, and which agent is meant?
//
// The answers follow from the client certificate, from a bearer token and from the path. What the caller may do at the agent
// is for the agent to decide.
package callers

import (
	"errors"
	"net/http"
	"strconv"
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

// Options configures Callers.
type Options struct {
	// Trust verifies callers. Without it there is no Bind.
	Trust identity.Trust
	// Blocklist has the agents that may not be reached; nil if none.
	Blocklist Blocklist
	// Proxies are who may vouch for callers.
	Proxies identity.Proxies
	// Table says which callers may reach which agents.
	Table identity.Callers
	// Tokens is nil if no key is configured. Then every token is refused.
	Tokens Tokens
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
	reach, err := c.whose(peer.Proof)
	if err != nil {
		return Call{}, err
	}
	call, err := c.callOf(reach, r.Header, target)
	if err == nil {
		err = c.checkAgent(call.Agent)
	}
	if err != nil {
		return Call{}, err
	}
	return call, nil
}

// callOf returns the call of a caller, by its token if it has one.
func (c *Callers) callOf(reach identity.Reach, header http.Header, target Target) (Call, error) {
	if bearer, given := bearerToken(header); given {
		return c.byToken(reach, bearer, target)
	}
	return byReach(reach, target)
}

// byToken takes the agent from the token. A caller that may not use any token needs one for an agent that it may reach anyway.
func (c *Callers) byToken(reach identity.Reach, bearer string, target Target) (Call, error) {
	if c.options.Tokens == nil {
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "bearer tokens are not accepted here: set --jwt-key, or come with the certificate of a caller of the agent and no token")
	}
	claims, err := c.options.Tokens.Verify(bearer)
	switch {
	case err != nil:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "%v", err)
	case target.Agent != "" && target.Agent != claims.Agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the path for agent %q: leave the token out, or ask for its agent",
			claims.Agent, target.Agent)
	case !reach.Token && !reach.May(claims.Agent):
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the certificate is that of a caller of %s: "+
			"use the one's token with the one's certificate", claims.Agent, agentsOf(reach))
	}
	return Call{Caller: string(claims.Agent), Agent: claims.Agent, Path: target.Path}, nil
}

// byReach takes the agent from the path, or from the caller if that may reach one only.
func byReach(reach identity.Reach, target Target) (Call, error) {
	agent := target.Agent
	if agent == "" {
		agent = reach.Only()
	}
	switch {
	case agent != "" && reach.May(agent):
		return Call{Caller: reach.Caller, Agent: agent, Path: target.Path}, nil
	case len(reach.Agents) == 0 && !reach.All:
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "the certificate is for any agent that a bearer token is for: come with a token")
	case agent == "":
		return Call{}, apihttp.Errorf(http.StatusBadRequest, "caller %q may reach %s: say which by the path, %s<name>/…", reach.Caller, agentsOf(reach), agentsPrefix)
	default:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the certificate is that of a caller of %s, which may not reach agent %q: "+
			"let its SPIFFE ID do so by the setting --callers", agentsOf(reach), target.Agent)
	}
}

// agentsOf says which agents a caller may reach.
func agentsOf(reach identity.Reach) string {
	if reach.All {
		return "every agent"
	}
	names := make([]string, len(reach.Agents))
	for i, agent := range reach.Agents {
		names[i] = strconv.Quote(string(agent))
	}
	return "agent " + strings.Join(names, " or ")
}

// whose returns what a peer may reach: by its URI alone. Its error is an *apihttp.Error.
func (c *Callers) whose(proof identity.Proof) (identity.Reach, error) {
	reach, err := c.options.Table.Of(proof)
	switch {
	case errors.Is(err, identity.ErrAgentName):
		return identity.Reach{}, apihttp.Errorf(http.StatusForbidden, "%s: %v", proof, err)
	case err != nil:
		want := identity.Caller{TrustDomain: identity.CallerTrustDomain}.URI()
		return identity.Reach{}, apihttp.Errorf(http.StatusUnauthorized, "%s is not that of a caller of the hub: %v: let its SPIFFE ID reach agents by "+
			"the setting --callers, or issue one with the URI %s/<agent>, as argocd-agentctl agent create --upsert does", proof, err, want)
	}
	return reach, nil
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

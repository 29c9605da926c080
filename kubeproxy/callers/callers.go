// Package callers answers two questions about a request: who is the caller, and which agent is meant?
//
// The answers follow from the client certificate, from a bearer token and from the path. What the caller may do at the agent
// is for the agent to decide.
package callers

import (
	"cmp"
	"errors"
	"fmt"
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

// Options configures Callers.
type Options struct {
	// Trust verifies callers. Without it there is no Bind.
	Trust identity.Trust
	// Blocklist has the agents that may not be reached; nil if none.
	Blocklist Blocklist
	// Proxies are who may vouch for callers.
	Proxies identity.Proxies
	// TrustDomain is that of the URIs by which certificates name callers; see identity.Caller.
	TrustDomain string
	// Tokens is nil if no key is configured. Then every token is refused.
	Tokens Tokens
	// AllAgents are the callers that may reach every agent, by SPIFFE IDs such as spiffe://example.org/argocd.
	AllAgents []string
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

// certificate is whom a client certificate names: by its URI alone. The identity of an agent is not one of a caller.
type certificate struct {
	name      string         // for logs
	agent     identity.Agent // that it may reach; empty if a token, or for AllAgents the path, has to say
	allAgents bool           // it names one of Options.AllAgents
	refusal   *apihttp.Error // why it names no caller
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
	call, err := c.callOf(c.whose(peer.Proof), bearer, given, target)
	if err == nil {
		err = c.checkAgent(call.Agent)
	}
	if err != nil {
		return Call{}, err
	}
	return call, nil
}

// callOf returns the call of a caller with a certificate, and with a token if that is given.
func (c *Callers) callOf(named *certificate, bearer string, given bool, target Target) (Call, error) {
	if named.refusal != nil {
		return Call{}, named.refusal
	}
	if given {
		return c.byToken(named, bearer, target)
	}
	return byCertificate(named, target)
}

// byToken takes the agent from the token. If the certificate is for one agent, the token must be for the same one.
func (c *Callers) byToken(named *certificate, bearer string, target Target) (Call, error) {
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
	}
	if named.agent != "" && named.agent != claims.Agent {
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the token is for agent %q, the certificate is that of a caller of agent %q: "+
			"use the one's token with the one's certificate", claims.Agent, named.agent)
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
	case named.agent == "":
		return Call{}, apihttp.Errorf(http.StatusUnauthorized, "the certificate is for any agent that a bearer token is for: come with a token")
	case target.Agent != "" && target.Agent != named.agent:
		return Call{}, apihttp.Errorf(http.StatusForbidden, "the certificate is that of a caller of agent %q, which may not reach agent %q: "+
			"name its URI in --all-agents-callers if it is to reach every agent", named.agent, target.Agent)
	default:
		return Call{Caller: named.name, Agent: named.agent, Path: target.Path}, nil
	}
}

// whose returns whom a proof names.
func (c *Callers) whose(proof identity.Proof) *certificate {
	if id, err := proof.URI(); err == nil && slices.Contains(c.options.AllAgents, id) {
		return &certificate{name: id, allAgents: true}
	}
	caller, err := identity.CallerOf(proof)
	if err == nil && caller.TrustDomain != c.options.TrustDomain {
		err = fmt.Errorf("its URI %q is of another trust domain than %q, the setting --caller-trust-domain", caller.URI(), c.options.TrustDomain)
	}
	switch {
	case errors.Is(err, identity.ErrAgentName):
		return &certificate{refusal: apihttp.Errorf(http.StatusForbidden, "%s: %v", proof, err)}
	case err != nil:
		want := identity.Caller{TrustDomain: c.options.TrustDomain}.URI()
		return &certificate{refusal: apihttp.Errorf(http.StatusUnauthorized, "%s is not that of a caller of the hub: %v: "+
			"issue one with the URI %s/<agent>, as argocd-agentctl agent create --upsert does", proof, err, want)}
	}
	return &certificate{name: cmp.Or(string(caller.Agent), "caller"), agent: caller.Agent}
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

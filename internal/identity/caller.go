package identity

import (
	"fmt"
	"net/url"
	"strings"
)

// CallerTrustDomain is the trust domain of the callers' URIs that argocd-agentctl issues.
const CallerTrustDomain = "argocd-agent"

// callerPath begins the paths of callers' URIs.
const callerPath = "/caller"

// Caller is who on the hub asks kubeproxy for an agent's API server: Argo CD, by the certificate in a cluster Secret. Whoever
// reads that Secret has it. So it is an identity of its own, which no principal takes for the agent's:
//
//	spiffe://<trust domain>/caller/<agent>   may reach one agent
//	spiffe://<trust domain>/caller           may reach the agent that a bearer token is for
type Caller struct {
	TrustDomain string
	// Agent is the one that may be reached; empty if a token has to say.
	Agent Agent
}

// URI is how a certificate names the caller.
func (c Caller) URI() *url.URL {
	id := &url.URL{Scheme: "spiffe", Host: c.TrustDomain, Path: callerPath}
	if c.Agent != "" {
		id.Path += "/" + string(c.Agent)
	}
	return id
}

// CallerOf returns the caller that a proof names, by its one URI. That the proof is good, and the trust domain, are for the caller of this
// function to see to.
func CallerOf(proof Proof) (Caller, error) {
	uri, err := proof.URI()
	if err != nil {
		return Caller{}, err
	}
	id, err := url.Parse(uri)
	if err != nil {
		return Caller{}, err
	}
	caller := Caller{TrustDomain: id.Host}
	if name, some := strings.CutPrefix(id.Path, callerPath+"/"); some {
		if caller.Agent, err = ParseAgent(name); err != nil {
			return Caller{}, fmt.Errorf("its URI %q: %w", id, err)
		}
	}
	if id.String() != caller.URI().String() {
		return Caller{}, fmt.Errorf("its URI %q is not that of a caller, such as %q", id, Caller{TrustDomain: CallerTrustDomain, Agent: "berlin"}.URI())
	}
	return caller, nil
}

// refuseCaller returns an error for a proof that names a caller, whatever else it names.
func refuseCaller(proof Proof) error {
	for _, uri := range proof.URIs {
		id, err := url.Parse(uri)
		if err != nil {
			return fmt.Errorf("its URI %q: %w", uri, err)
		}
		if id.Path == callerPath || strings.HasPrefix(id.Path, callerPath+"/") {
			return fmt.Errorf("its URI %q is that of a caller of kubeproxy, such as Argo CD, which is no agent and no component of the hub: "+
				"issue the agent's own with: argocd-agentctl pki issue agent", id)
		}
	}
	return nil
}

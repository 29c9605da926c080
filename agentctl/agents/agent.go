// Package agents keeps the cluster Secrets by which Argo CD, and the principal, know agents on the hub, and tells what is
// known of an agent, and what is wrong.
package agents

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/place"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Agent is what is known of an agent. It holds no key and no token.
type Agent struct {
	Name           string            `json:"name"`
	Secret         string            `json:"secret"`
	Server         string            `json:"server"`
	Labels         map[string]string `json:"labels,omitempty"` // but for those that every agent's Secret has
	SelfRegistered bool              `json:"selfRegistered"`
	// Certificate is what Argo CD shows to the resource proxy; not there if it cannot be read.
	Certificate *certificate.Info `json:"certificate,omitempty"`
	// Token is the bearer token that Argo CD shows along with it.
	Token *Token `json:"token,omitempty"`
	// Spoke is what the agent has, if that was looked at.
	Spoke    *Spoke   `json:"spoke,omitempty"`
	Problems []string `json:"problems"`
}

// ParseName accepts the name of an agent whose cluster Secret is on that hub.
func ParseName(hub *place.Place, name string) (string, error) {
	parsed, err := identity.ParseAgent(name, hub.Namespace)
	if err == nil && ca.IsComponent(name) {
		err = fmt.Errorf("%w %q: a component of the hub has that name in its certificate: rename the agent", identity.ErrAgentName, name)
	}
	return string(parsed), err
}

// List returns all agents that match a label selector, which may be empty, sorted by name.
func List(ctx context.Context, hub *place.Place, selector string) ([]Agent, error) {
	found, err := hub.List(ctx, strings.TrimSuffix(argocd.LabelAgent+","+selector, ","))
	if err != nil {
		return nil, err
	}
	known, err := look(ctx, hub)
	if err != nil {
		return nil, err
	}
	if known.hasNamespace, err = hub.Namespaces(ctx); err != nil { // one request in place of one for each agent
		return nil, err
	}
	all := make([]Agent, 0, len(found))
	for i := range found {
		one, err := known.describe(ctx, &found[i], found[i].Labels[argocd.LabelAgent])
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Agent) int { return strings.Compare(a.Name+" "+a.Secret, b.Name+" "+b.Secret) })
	return all, nil
}

// Inspect returns what is known of one agent. The spoke is nil if only the hub is to be looked at.
func Inspect(ctx context.Context, hub, spoke *place.Place, name string) (Agent, error) {
	if _, err := identity.ParseAgent(name); err != nil {
		return Agent{}, err
	}
	secrets, err := of(ctx, hub, name)
	if err != nil {
		return Agent{}, err
	}
	if len(secrets) == 0 {
		return Agent{}, fmt.Errorf("agent %s: there is no %s: list those that there are with: argocd-agentctl agent list, "+
			"or create it with: argocd-agentctl agent create %s", name, hub.Secret(argocd.ClusterSecretName(name)), name)
	}
	known, err := look(ctx, hub)
	if err != nil {
		return Agent{}, err
	}
	agent, err := known.describe(ctx, &secrets[0], name)
	if err != nil {
		return Agent{}, err
	}
	for i := range secrets[1:] {
		agent.Problems = append(agent.Problems, fmt.Sprintf("%s is about this agent too: delete one of them", hub.Secret(secrets[i+1].Name)))
	}
	if spoke != nil {
		err = known.visit(ctx, spoke, &agent)
	}
	return agent, err
}

// of returns the Secrets that are an agent's by their label, and the one that has the name of such a Secret. That one is
// first.
func of(ctx context.Context, hub *place.Place, name string) ([]corev1.Secret, error) {
	secrets, err := hub.List(ctx, argocd.LabelAgent+"="+name)
	if err != nil {
		return nil, err
	}
	usual := argocd.ClusterSecretName(name)
	at := slices.IndexFunc(secrets, func(s corev1.Secret) bool { return s.Name == usual })
	if at >= 0 {
		secrets[0], secrets[at] = secrets[at], secrets[0]
		return secrets, nil
	}
	named, err := hub.Get(ctx, usual)
	if err != nil || named == nil {
		return secrets, err
	}
	return append([]corev1.Secret{*named}, secrets...), nil
}

// known is what there is on the hub besides cluster Secrets, as far as it tells what is wrong with these.
type known struct {
	hub     *place.Place
	trusted ca.Trusted          // empty if there is none
	proxy   []*x509.Certificate // the resource proxy's, and those between it and its CA; none if there is none
	keys    tokenKeys
	// hasNamespace reports whether the hub has a namespace.
	hasNamespace func(ctx context.Context, name string) (bool, error)
}

// look reads what describe compares with.
func look(ctx context.Context, hub *place.Place) (*known, error) {
	k := &known{hub: hub, hasNamespace: hub.HasNamespace}
	secrets := make(map[string]*corev1.Secret)
	for _, name := range []string{ca.SecretName, ca.ResourceProxySecret, signingkey.SecretName} {
		found, err := hub.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		secrets[name] = found
	}
	if s := secrets[ca.SecretName]; s != nil {
		// What is wrong with it, argocd-agentctl pki inspect tells.
		k.trusted, _ = ca.ReadTrusted(s, hub)
	}
	if s := secrets[ca.ResourceProxySecret]; s != nil {
		if chain, err := ca.ReadPair(s.Data); err == nil {
			k.proxy = chain
		}
	}
	k.keys = readKeys(secrets[signingkey.SecretName], hub)
	return k, nil
}

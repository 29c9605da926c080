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
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

// Agent describes an agent. It holds no key and no token.
type Agent struct {
	Name           string            `json:"name"`
	Secret         string            `json:"secret"`
	Server         string            `json:"server"`
	Labels         map[string]string `json:"labels,omitempty"` // but for those that every agent's Secret has
	SelfRegistered bool              `json:"selfRegistered"`
	// Mode is the one that the principal takes the agent in.
	Mode string `json:"mode"`
	// HeldDeletions is how many deletions of its objects the principal's deletion guard holds.
	HeldDeletions int `json:"heldDeletions"`
	// Certificate is Argo CD's client certificate for the resource proxy; nil if it cannot be read.
	Certificate *certificate.Info `json:"certificate,omitempty"`
	// Token is the bearer token that Argo CD sends along with it.
	Token *Token `json:"token,omitempty"`
	// Spoke is what the agent has on its cluster, if that was inspected.
	Spoke *Spoke `json:"spoke,omitempty"`
	// Connection is whether it is connected.
	Connection principals.Connection `json:"connection"`
	Problems   []string              `json:"problems"`
}

// ParseName accepts the name of an agent whose cluster Secret is on that hub.
func ParseName(hub *cluster.Client, name string) (string, error) {
	parsed, err := identity.ParseAgent(name, hub.Namespace, argocd.InCluster)
	if err == nil && ca.IsComponent(name) {
		err = fmt.Errorf("%w %q: a component of the hub has that name in its certificate: rename the agent", identity.ErrAgentName, name)
	}
	return string(parsed), err
}

// List returns all agents that match a label selector, which may be empty, sorted by name. presence is asked which of them
// are connected, once the rest is known.
func List(ctx context.Context, hub *cluster.Client, selector string, presence func() principals.Presence) ([]Agent, error) {
	found, err := hub.List(ctx, strings.TrimSuffix(argocd.LabelAgent+","+selector, ","))
	if err != nil {
		return nil, err
	}
	state, err := loadHub(ctx, hub)
	if err != nil {
		return nil, err
	}
	if state.hasNamespace, err = hub.Namespaces(ctx); err != nil { // one request instead of one per agent
		return nil, err
	}
	all := make([]Agent, 0, len(found))
	for i := range found {
		one, err := state.describe(ctx, &found[i], found[i].Labels[argocd.LabelAgent])
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	if len(all) > 0 {
		connected := presence()
		for i := range all {
			all[i].noteConnection(connected)
		}
	}
	slices.SortFunc(all, func(a, b Agent) int { return strings.Compare(a.Name+" "+a.Secret, b.Name+" "+b.Secret) })
	return all, nil
}

// noteConnection adds whether the agent is connected, and that it is away as a problem.
func (a *Agent) noteConnection(presence principals.Presence) {
	a.Connection = presence.Of(a.Name)
	if a.Connection.State != principals.Away {
		return
	}
	since := "since the principal started"
	if a.Connection.Since != nil {
		since = "since " + certificate.Stamp(*a.Connection.Since)
	}
	a.Problems = append(a.Problems, "it has not been connected "+since+": the agent's log says why")
}

// Inspect describes one agent. presence is asked whether it is connected. The spoke is nil if only the hub is inspected.
func Inspect(ctx context.Context, hub, spoke *cluster.Client, name string, presence func() principals.Presence) (Agent, error) {
	secrets, err := existing(ctx, hub, name)
	if err != nil {
		return Agent{}, err
	}
	state, err := loadHub(ctx, hub)
	if err != nil {
		return Agent{}, err
	}
	agent, err := state.describe(ctx, &secrets[0], name)
	if err != nil {
		return Agent{}, err
	}
	agent.noteConnection(presence())
	for i := range secrets[1:] {
		agent.Problems = append(agent.Problems, fmt.Sprintf("%s is about this agent too: delete one of them", hub.Secret(secrets[i+1].Name)))
	}
	if spoke != nil {
		err = state.inspectSpoke(ctx, spoke, &agent)
	}
	return agent, err
}

// existing is secretsOf for an agent that must have one.
func existing(ctx context.Context, hub *cluster.Client, name string) ([]corev1.Secret, error) {
	if _, err := identity.ParseAgent(name); err != nil {
		return nil, err
	}
	secrets, err := secretsOf(ctx, hub, name)
	if err == nil && len(secrets) == 0 {
		err = fmt.Errorf("agent %s: there is no %s: list all agents with: argocd-agentctl agent list, "+
			"or create it with: argocd-agentctl agent create %s", name, hub.Secret(argocd.ClusterSecretName(name)), name)
	}
	return secrets, err
}

// secretsOf returns the Secrets with an agent's label, and the one with the name of its cluster Secret. That one is first.
func secretsOf(ctx context.Context, hub *cluster.Client, name string) ([]corev1.Secret, error) {
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

// hubState is what cluster Secrets are compared with.
type hubState struct {
	hub     *cluster.Client
	trusted ca.Trusted          // empty without a CA
	proxy   []*x509.Certificate // the resource proxy's chain; empty without a certificate
	keys    tokenKeys
	blocked blocklist.List
	held    map[string][]guard.Held // deletions that the principal's guard holds, by agent
	// hasNamespace reports whether the hub has a namespace.
	hasNamespace func(ctx context.Context, name string) (bool, error)
}

// loadHub reads the hub's CA, the resource proxy's certificate and the signing keys.
func loadHub(ctx context.Context, hub *cluster.Client) (*hubState, error) {
	k := &hubState{hub: hub, hasNamespace: hub.HasNamespace}
	secrets := make(map[string]*corev1.Secret)
	for _, name := range []string{ca.SecretName, ca.ResourceProxySecret, signingkey.SecretName} {
		found, err := hub.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		secrets[name] = found
	}
	if s := secrets[ca.SecretName]; s != nil {
		// argocd-agentctl pki inspect reports the problems of the CA.
		k.trusted, _ = ca.ReadTrusted(s, hub)
	}
	if s := secrets[ca.ResourceProxySecret]; s != nil {
		if chain, err := ca.ReadPair(s.Data); err == nil {
			k.proxy = chain
		}
	}
	k.keys = readKeys(secrets[signingkey.SecretName], hub)
	keys, err := hub.ConfigMapData(ctx, blocklist.ConfigMap)
	if err != nil && !apierrors.IsForbidden(err) { // whoever may read Secrets only is told the rest
		return nil, err
	}
	k.blocked, _ = blocklist.Parse(keys) // the principal says what cannot be read
	if k.held, err = heldDeletions(ctx, hub); apierrors.IsForbidden(err) {
		err = nil
	}
	return k, err
}

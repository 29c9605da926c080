package identity

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Components are the hub's own components, by what their certificates name them, and what each may dial at an agent. Each is
// bound to its targets, since they differ in what they expose: what is taken over with one must not reach what another guards.
type Components map[string][]string

// ParseComponents reads entries such as "argocd-agent-kubeproxy=kube", with one of these targets each. A component that may dial
// several has an entry for each. An error says what an entry looks like.
func ParseComponents(entries, targets []string) (Components, error) {
	components := make(Components)
	for _, entry := range entries {
		at := strings.LastIndexByte(entry, '=')
		if at <= 0 || !slices.Contains(targets, entry[at+1:]) {
			return nil, fmt.Errorf("%q: want the name of a component and what it may dial, NAME=%s", entry, strings.Join(targets, " or NAME="))
		}
		components[entry[:at]] = append(components[entry[:at]], entry[at+1:])
	}
	return components, nil
}

// AuthenticateComponent returns the peer of the gRPC connection that ctx belongs to if it is one of the hub's own
// components, by the names in Options.Components. Its errors wrap ErrUnauthenticated; either way the peer must not be served.
func (a *Authenticator) AuthenticateComponent(ctx context.Context) (Peer, error) {
	proof, err := a.proofOf(ctx)
	if err != nil {
		return Peer{}, err
	}
	component := a.ComponentOf(proof)
	if component == "" {
		return Peer{}, fmt.Errorf("%w: %s from %s is of no component of the hub, which are known by their %s: "+
			"name it in the hub's setting --hub-components", ErrUnauthenticated, proof, proof.Address, a.component.name)
	}
	return Peer{Proof: proof, Component: component, Targets: a.options.Components[component]}, nil
}

// ComponentOf returns which of the hub's components a proof names, empty if none. It reads the field that names agents, by
// Options.Auth: who signs certificates vouches for that field, and may let anybody choose the others. That the proof is good is for the
// caller to see to.
func (a *Authenticator) ComponentOf(proof Proof) string {
	name, err := a.component.read(proof)
	if _, ok := a.options.Components[name]; err != nil || !ok || refuseCaller(proof) != nil {
		return ""
	}
	return name
}

// TargetsOf returns what a component may dial, or be: see Options.Components.
func (a *Authenticator) TargetsOf(component string) []string { return a.options.Components[component] }

// Unmatched returns the components that nobody can be by the field that Options.Auth reads, sorted: common names
// where URIs are read.
func (a *Authenticator) Unmatched() []string {
	var unmatched []string
	for name := range a.options.Components {
		if a.component.uri && !strings.Contains(name, "://") {
			unmatched = append(unmatched, name)
		}
	}
	slices.Sort(unmatched)
	return unmatched
}

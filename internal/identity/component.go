package identity

import (
	"context"
	"crypto/x509"
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
	found, err := peerFrom(ctx)
	if err != nil {
		return Peer{}, err
	}
	if found.Component = a.ComponentOf(found.Certificates[0]); found.Component == "" {
		return Peer{}, fmt.Errorf("%w: client certificate %q from %s is of no component of the hub, which are known by their %s: "+
			"name it in the hub's setting --hub-components", ErrUnauthenticated, found.Subject, found.Address, a.component.name)
	}
	found.Targets = a.components[found.Component]
	return found, nil
}

// ComponentOf returns which of the hub's components a certificate names, empty if none. It reads the field that names agents, by
// Options.Auth: who signs certificates vouches for that field, and may let anybody choose the others. That the certificate was
// verified is for the caller to have seen to.
func (a *Authenticator) ComponentOf(certificate *x509.Certificate) string {
	name, err := a.component.read(certificate)
	if _, ok := a.components[name]; err != nil || !ok || refuseCaller(certificate) != nil {
		return ""
	}
	return name
}

// Unmatched returns the components that no certificate can name by the field that Options.Auth reads, sorted: common names
// where URIs are read.
func (a *Authenticator) Unmatched() []string {
	var unmatched []string
	for name := range a.components {
		if a.component.uri && !strings.Contains(name, "://") {
			unmatched = append(unmatched, name)
		}
	}
	slices.Sort(unmatched)
	return unmatched
}

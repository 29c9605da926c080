package identity

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
)

// AuthenticateComponent returns the peer of the gRPC connection that ctx belongs to if it is one of the hub's own
// components, by the names in Options.Components. Its errors wrap ErrUnauthenticated; either way the peer must not be served.
func (a *Authenticator) AuthenticateComponent(ctx context.Context) (Peer, error) {
	found, err := peerFrom(ctx)
	if err != nil {
		return Peer{}, err
	}
	if found.Component = a.ComponentOf(found.Certificates[0]); found.Component == "" {
		return Peer{}, fmt.Errorf("%w: client certificate %q from %s is of no component of the hub: name it in the hub's setting --hub-components",
			ErrUnauthenticated, found.Subject, found.Address)
	}
	return found, nil
}

// ComponentOf returns which of the hub's components a certificate names, empty if none: by its one URI, such as a SPIFFE ID,
// or by its common name. That it was verified is for the caller to have seen to.
func (a *Authenticator) ComponentOf(certificate *x509.Certificate) string {
	for _, read := range []func(*x509.Certificate) (string, error){URI, CommonName} {
		name, err := read(certificate)
		if err != nil || !slices.Contains(a.components, name) {
			continue
		}
		return name
	}
	return ""
}

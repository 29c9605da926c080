// Package spire signs agents' certificates by an intermediate CA that SPIRE's server gives to the principal, as it does to a SPIRE server that
// is nested below it (downstream). The key of that CA is in memory only, and each replica of the principal has another.
package spire

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Options configure a Signer.
type Options struct {
	// Server is the address of the SPIRE server's API for its agents, host:port.
	Server string
	// Certificates are what the SPIFFE Workload API gives to the principal: the X.509-SVID by which it asks, and the bundle by which the
	// server and all that comes from it are verified.
	Certificates *certs.Source
	Policy       certs.Policy
	// Templates are the forms of agents' SPIFFE IDs. The first one of the principal's own trust domain is that of the certificates.
	Templates []identity.Template
	// Lifetime is how long certificates are valid, unless the intermediate CA ends before.
	Lifetime time.Duration
	// Dial are more options of connections to the server.
	Dial    []grpc.DialOption
	Metrics *certs.Metrics
	Logger  *slog.Logger
}

// Signer is an enrollment.Signer.
type Signer struct {
	options Options
	source  *certs.Source // of the intermediate CA
}

// New returns a Signer that has no CA until Run has got one.
func New(o Options) (*Signer, error) {
	source, err := certs.New(certs.Options{Name: "signer", Pair: origin{o}, Metrics: o.Metrics, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Signer{o, source}, nil
}

// Run keeps the Signer supplied with an intermediate CA until the context ends.
func (s *Signer) Run(ctx context.Context) error { return s.source.Run(ctx) }

// Ready returns nil when there is a CA to sign with, and otherwise why there is none.
func (s *Signer) Ready() error { return s.source.Ready() }

// Sign returns a certificate of an agent, which has its SPIFFE ID and its name, and after it that of the intermediate CA, and of those
// above that one if there are any but the root.
func (s *Signer) Sign(_ context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
	if err := s.source.Ready(); err != nil {
		return nil, err
	}
	material, err := s.source.Current()
	if err != nil {
		return nil, err
	}
	ca, err := pki.CAOf(*material.Certificate)
	if err != nil {
		return nil, err
	}
	own, err := x509svid.IDFromCert(ca.Certificate())
	if err != nil {
		return nil, err
	}
	holder, err := s.options.holder(own.TrustDomain(), agent)
	if err != nil {
		return nil, err
	}
	holder.Validity = ca.Lasting(s.options.Lifetime)
	leaf, err := ca.SignClient(holder, request.Key)
	if err != nil {
		return nil, err
	}
	return append(leaf, ca.PEM().Certificate...), nil
}

// Roots returns the CAs of the principal's trust domain as PEM, by which agents know the principal that read no Workload API. It is nil if the
// principal's own certificate is not by those.
func (s *Signer) Roots() []byte {
	material, err := s.options.Certificates.Current()
	if err != nil || material.Certificate == nil || material.Bundles == nil {
		return nil
	}
	id, _, err := x509svid.ParseAndVerify(material.Certificate.Certificate, material.Bundles)
	if err != nil {
		return nil
	}
	bundle, err := material.Bundles.GetX509BundleForTrustDomain(id.TrustDomain())
	if err != nil {
		return nil
	}
	var text []byte
	for _, ca := range bundle.X509Authorities() {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})...)
	}
	return text
}

// holder is whom the certificate of an agent names, in a trust domain.
func (o Options) holder(domain spiffeid.TrustDomain, agent identity.Agent) (pki.ClientOptions, error) {
	for _, template := range o.Templates {
		if of, one := template.TrustDomain(); !one || of != domain {
			continue
		}
		id, err := template.ID(agent)
		return pki.ClientOptions{CommonName: string(agent), SPIFFEID: id.String()}, err
	}
	return pki.ClientOptions{}, fmt.Errorf("no form in --auth is of the trust domain %s, which is the principal's: the SPIRE server gives certificates of "+
		"its own trust domain only: add a form such as spiffe://%s/agent/{agent}", domain, domain)
}

package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// ServerOptions says what a server certificate is for.
type ServerOptions struct {
	// CommonName is informational; clients check Names and Addresses. The default is the first of them.
	CommonName string
	// Names are the DNS names and Addresses the IP addresses by which clients reach the server. One at least is required.
	Names     []string
	Addresses []net.IP
	// Peer makes it a client's too: servers such as principals are clients of each other.
	Peer bool
	// SPIFFEID, when set, becomes the certificate's one URI: a proxy's is known by it to what is behind.
	SPIFFEID string
	Validity Validity
	Key      KeyKind
}

// IssueServer makes a key and signs a certificate for a TLS server.
func (a *CA) IssueServer(options ServerOptions) (Pair, error) {
	name := options.CommonName
	switch {
	case len(options.Names)+len(options.Addresses) == 0:
		return Pair{}, errors.New("server certificate: no DNS name and no IP address: name those by which clients reach the server")
	case name == "" && len(options.Names) > 0:
		name = options.Names[0]
	case name == "":
		name = options.Addresses[0].String()
	}
	usages := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if options.Peer {
		usages = append(usages, x509.ExtKeyUsageClientAuth)
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    options.Names,
		IPAddresses: options.Addresses,
		ExtKeyUsage: usages,
	}
	if options.SPIFFEID != "" {
		id, err := parseID(options.SPIFFEID)
		if err != nil {
			return Pair{}, fmt.Errorf("server certificate of %q: %w", name, err)
		}
		template.URIs = []*url.URL{id}
	}
	return a.issue(template, options.Validity, options.Key)
}

// ClientOptions says whom a client certificate names.
type ClientOptions struct {
	// CommonName is the agent's name, or that of a component of the hub. It may be empty if one of the others is set.
	CommonName string
	// Caller, when set, is the agent that Argo CD is to reach through kubeproxy. The certificate then has the URI of that caller, and
	// nothing by which a principal would take it for the agent: no common name and no other URI.
	Caller identity.Agent
	// SPIFFEID, when set, becomes the certificate's one URI, e.g. spiffe://example.org/ns/argocd/sa/agent-a.
	SPIFFEID string
	Validity Validity
	Key      KeyKind
}

// IssueClient makes a key and signs a certificate for a TLS client.
func (a *CA) IssueClient(options ClientOptions) (Pair, error) {
	template, err := options.template()
	if err != nil {
		return Pair{}, err
	}
	return a.issue(template, options.Validity, options.Key)
}

// SignClient signs the certificate of a client that has a key already, and returns it as PEM. Every field of it comes from the options, whose Key
// does not count.
func (a *CA) SignClient(options ClientOptions, key PublicKey) ([]byte, error) {
	if key.key == nil {
		return nil, errors.New("client certificate: no public key: take that of a request")
	}
	template, err := options.template()
	if err != nil {
		return nil, err
	}
	validity, err := a.leafValidity(options.Validity)
	if err != nil {
		return nil, fmt.Errorf("certificate of %q: %w", holder(template), err)
	}
	return a.sign(template, validity, key.key)
}

// template is what a certificate says of its holder and its use.
func (options ClientOptions) template() (*x509.Certificate, error) {
	switch {
	case options.Caller != "" && (options.CommonName != "" || options.SPIFFEID != ""):
		return nil, fmt.Errorf("client certificate of the caller of %q: it must not name anybody else: give no common name and no SPIFFE ID", options.Caller)
	case options.CommonName == "" && options.SPIFFEID == "" && options.Caller == "":
		return nil, errors.New("client certificate: no common name: give the agent's name")
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: options.CommonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if options.Caller != "" {
		template.URIs = []*url.URL{identity.Caller{TrustDomain: identity.CallerTrustDomain, Agent: options.Caller}.URI()}
	}
	if options.SPIFFEID != "" {
		id, err := parseID(options.SPIFFEID)
		if err != nil {
			return nil, fmt.Errorf("client certificate of %q: %w", options.CommonName, err)
		}
		template.URIs = []*url.URL{id}
	}
	return template, nil
}

// parseID reads a SPIFFE ID.
func parseID(text string) (*url.URL, error) {
	id, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("SPIFFE ID: %w", err)
	}
	if id.Scheme != "spiffe" || id.Host == "" {
		return nil, fmt.Errorf("SPIFFE ID %q: it must look like spiffe://example.org/path", text)
	}
	return id, nil
}

// holder is whom a template names.
func holder(template *x509.Certificate) string {
	if template.Subject.CommonName == "" {
		return template.URIs[0].String()
	}
	return template.Subject.CommonName
}

// issue completes the template, which names the holder and the use, with validity and a new key, and signs it.
func (a *CA) issue(template *x509.Certificate, validity Validity, kind KeyKind) (Pair, error) {
	validity, err := a.leafValidity(validity)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %q: %w", holder(template), err)
	}
	key, err := newKey(kind)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %q: generate key: %w", holder(template), err)
	}
	certificate, err := a.sign(template, validity, key.Public())
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %q: %w", holder(template), err)
	}
	return Pair{Certificate: certificate, Key: keyPEM}, nil
}

// Lasting returns a validity from now on, which ends with the CA if that is earlier. It begins a little before, for machines whose clock is
// behind, and not by much where it is short.
func (a *CA) Lasting(lifetime time.Duration) Validity {
	now := time.Now()
	validity := Validity{NotBefore: now.Add(-min(backdate, lifetime/10)), NotAfter: now.Add(lifetime)}
	if end := a.certificate.NotAfter; end.Before(validity.NotAfter) {
		validity.NotAfter = end
	}
	return validity
}

// leafValidity fills in the defaults. No certificate may outlive its CA: it would stop working on a day that
// its own dates do not show. A default lifetime is shortened, one that was asked for is refused.
func (a *CA) leafValidity(asked Validity) (Validity, error) {
	end := a.certificate.NotAfter
	validity, err := asked.resolve(LeafLifetime)
	if err != nil {
		return validity, err
	}
	if !validity.NotAfter.Truncate(time.Second).After(end) {
		return validity, nil
	}
	if asked.NotAfter.IsZero() && end.After(validity.NotBefore) {
		validity.NotAfter = end
		return validity, nil
	}
	return validity, fmt.Errorf("validity: its CA %q ends at %s: choose an earlier end, or renew the CA first",
		a.certificate.Subject.CommonName, end.UTC().Format(time.RFC3339))
}

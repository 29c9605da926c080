package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Material is what one handshake uses. It is a snapshot: nobody changes it, readers included.
type Material struct {
	// Certificate is our own, with its key and Leaf set; nil when the Source has no Pair.
	Certificate *tls.Certificate
	// Roots are the CAs that the peer's certificate is verified against; nil when the Source has no Roots.
	Roots *x509.CertPool
	// CAs are the certificates in Roots.
	CAs []*x509.Certificate
	// Bundles say which of the CAs are trusted for which SPIFFE trust domain; nil if all are for everybody.
	Bundles *x509bundle.Set
}

// leaf returns our own leaf certificate, or nil.
func (m Material) leaf() *x509.Certificate {
	if m.Certificate == nil {
		return nil
	}
	return m.Certificate.Leaf
}

// content is one part of the material: either a pair or a pool.
type content struct {
	pair  *tls.Certificate
	roots *x509.CertPool
	cas   []*x509.Certificate
	// bundles are nil if the CAs are not those of trust domains.
	bundles *x509bundle.Set
	// notBefore and notAfter span the time in which the content is of use.
	notBefore, notAfter time.Time
}

// validAt says whether the content is of use at that time.
func (c content) validAt(now time.Time) bool {
	return !now.Before(c.notBefore) && !now.After(c.notAfter)
}

// parsePair reads a certificate and its key.
func parsePair(blocks Blocks) (content, error) {
	pair, err := tls.X509KeyPair(blocks.Certificate, blocks.Key)
	if err != nil {
		return content{}, fmt.Errorf("certificate and key: %w", err)
	}
	return content{pair: &pair, notBefore: pair.Leaf.NotBefore, notAfter: pair.Leaf.NotAfter}, nil
}

// parseRoots reads a pool of trusted CAs. It is of use as long as any of them is valid: during a rotation the
// old one stays beside the new one.
func parseRoots(blocks Blocks) (content, error) {
	if blocks.Bundles != nil {
		return parseBundles(blocks.Bundles)
	}
	cas, err := ParseCertificates(blocks.CAs)
	if err != nil {
		return content{}, fmt.Errorf("trusted CAs: %w", err)
	}
	return rootsOf(cas), nil
}

func rootsOf(cas []*x509.Certificate) content {
	parsed := content{roots: x509.NewCertPool(), cas: cas, notBefore: cas[0].NotBefore}
	for _, ca := range cas {
		parsed.roots.AddCert(ca)
		if ca.NotBefore.Before(parsed.notBefore) {
			parsed.notBefore = ca.NotBefore
		}
		if ca.NotAfter.After(parsed.notAfter) {
			parsed.notAfter = ca.NotAfter
		}
	}
	return parsed
}

// parseBundles reads the CAs of SPIFFE trust domains.
func parseBundles(text map[string][]byte) (content, error) {
	bundles := x509bundle.NewSet()
	var all []*x509.Certificate
	for _, name := range slices.Sorted(maps.Keys(text)) {
		trustDomain, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return content{}, fmt.Errorf("trust domain %q: %w", name, err)
		}
		cas, err := ParseCertificates(text[name])
		if err != nil {
			return content{}, fmt.Errorf("bundle of trust domain %q: %w", name, err)
		}
		bundles.Add(x509bundle.FromX509Authorities(trustDomain, cas))
		all = append(all, cas...)
	}
	if len(all) == 0 {
		return content{}, errors.New("there is no bundle of any trust domain")
	}
	parsed := rootsOf(all)
	parsed.bundles = bundles
	return parsed, nil
}

// ParseCertificates reads every certificate of the PEM text. Unlike x509.CertPool it refuses text in which one of them
// is broken, and text that holds none.
func ParseCertificates(text []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certificates)+1, err)
		}
		certificates = append(certificates, certificate)
	}
	if len(certificates) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return certificates, nil
}

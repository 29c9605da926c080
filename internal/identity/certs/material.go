package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// Material is what one handshake uses. It is a snapshot: nobody changes it, readers included.
type Material struct {
	// Certificate is our own, with its key and Leaf set; nil when the Source has no Pair.
	Certificate *tls.Certificate
	// Roots are the CAs that the peer's certificate is verified against; nil when the Source has no Roots.
	Roots *x509.CertPool
	// CAs are the certificates in Roots.
	CAs []*x509.Certificate
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
	cas, err := ParseCertificates(blocks.CAs)
	if err != nil {
		return content{}, fmt.Errorf("trusted CAs: %w", err)
	}
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

// Package certificate describes X.509 certificates for users, and finds problems with them.
package certificate

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"strings"
	"time"
)

// Info describes a certificate.
type Info struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Names     []string  `json:"names,omitempty"` // DNS names, IP addresses and URIs
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Key       string    `json:"key"`
	SHA256    string    `json:"sha256"`
	// PEM is the certificate itself, if that was asked for.
	PEM string `json:"pem,omitempty"`

	raw []byte
}

// AddPEM sets PEM.
func (i *Info) AddPEM() {
	i.PEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.raw}))
}

// Describe returns the description of a certificate.
func Describe(c *x509.Certificate) Info {
	sum := sha256.Sum256(c.Raw)
	return Info{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Names: Names(c),
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
		Key: keyOf(c), SHA256: hex.EncodeToString(sum[:]), raw: c.Raw,
	}
}

// Names returns the alternative names of a certificate: DNS names, IP addresses and URIs.
func Names(c *x509.Certificate) []string {
	var names []string
	names = append(names, c.DNSNames...)
	for _, address := range c.IPAddresses {
		names = append(names, address.String())
	}
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	return names
}

// List joins names for a sentence.
func List(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// keyOf returns the kind of a certificate's key.
func keyOf(c *x509.Certificate) string {
	switch key := c.PublicKey.(type) {
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", key.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + key.Params().Name
	case ed25519.PublicKey:
		return "Ed25519"
	default:
		return fmt.Sprintf("%T", key)
	}
}

// Stamp formats a time as RFC 3339 in UTC.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
)

// Algorithm names the kind of a private key. The zero value means ECDSAP256.
type Algorithm string

// The algorithms that keys can be made for.
const (
	ECDSAP256 Algorithm = "ecdsa-p256"
	ECDSAP384 Algorithm = "ecdsa-p384"
	ECDSAP521 Algorithm = "ecdsa-p521"
	Ed25519   Algorithm = "ed25519"
	RSA       Algorithm = "rsa"
)

// rsaBits is the size of RSA keys.
const rsaBits = 4096

// ParseAlgorithm returns the algorithm of that name, or an error that lists the valid names.
func ParseAlgorithm(name string) (Algorithm, error) {
	all := []string{string(ECDSAP256), string(ECDSAP384), string(ECDSAP521), string(Ed25519), string(RSA)}
	if !slices.Contains(all, name) {
		return "", fmt.Errorf("key algorithm %q: unknown: use one of %s", name, strings.Join(all, ", "))
	}
	return Algorithm(name), nil
}

// newKey makes a private key of the algorithm.
func newKey(algorithm Algorithm) (crypto.Signer, error) {
	switch algorithm {
	case "", ECDSAP256:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case ECDSAP384:
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case ECDSAP521:
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case RSA:
		return rsa.GenerateKey(rand.Reader, rsaBits)
	default:
		_, err := ParseAlgorithm(string(algorithm))
		return nil, err
	}
}

// encodeKey returns the key as a PKCS #8 PEM block.
func encodeKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// encodeCertificate returns the DER certificate as a PEM block.
func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

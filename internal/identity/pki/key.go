package pki

import (
	"cmp"
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

// Sizes of RSA keys. To make a larger one than the largest would take minutes.
const (
	rsaBits    = 4096 // when nothing else is said
	minRSABits = 2048
	maxRSABits = 8192
)

// KeyKind says what kind of private key to make. The zero value means ECDSAP256.
type KeyKind struct {
	Algorithm Algorithm
	// Bits is the size of an RSA key, 4096 if zero. Keys of the other algorithms have one size each.
	Bits int
}

// ParseAlgorithm returns the algorithm of that name, or an error that lists the valid names.
func ParseAlgorithm(name string) (Algorithm, error) {
	all := []string{string(ECDSAP256), string(ECDSAP384), string(ECDSAP521), string(Ed25519), string(RSA)}
	if !slices.Contains(all, name) {
		return "", fmt.Errorf("key algorithm %q: unknown: use one of %s", name, strings.Join(all, ", "))
	}
	return Algorithm(name), nil
}

// ParseKeyKind returns the kind of key that a person names, by an algorithm and, unless that is zero, a size. A size alone
// stands for RSA: no other algorithm has a choice.
func ParseKeyKind(algorithm string, bits int) (KeyKind, error) {
	if algorithm == "" && bits != 0 {
		algorithm = string(RSA)
	}
	kind := KeyKind{Bits: bits}
	if algorithm != "" {
		var err error
		if kind.Algorithm, err = ParseAlgorithm(algorithm); err != nil {
			return KeyKind{}, err
		}
	}
	return kind, kind.check()
}

// check refuses a size that there is not.
func (k KeyKind) check() error {
	switch {
	case k.Bits == 0:
		return nil
	case k.Algorithm != RSA:
		return fmt.Errorf("key of %d bits: only %s keys come in sizes: leave the size out, or the algorithm", k.Bits, RSA)
	case k.Bits < minRSABits || k.Bits > maxRSABits:
		return fmt.Errorf("key of %d bits: use %d to %d", k.Bits, minRSABits, maxRSABits)
	default:
		return nil
	}
}

// NewKey makes a private key, and returns it as a PKCS #8 PEM block.
func NewKey(kind KeyKind) ([]byte, error) {
	key, err := newKey(kind)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	return encodeKey(key)
}

// newKey makes a private key of the kind.
func newKey(kind KeyKind) (crypto.Signer, error) {
	if err := kind.check(); err != nil {
		return nil, err
	}
	switch kind.Algorithm {
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
		return rsa.GenerateKey(rand.Reader, cmp.Or(kind.Bits, rsaBits))
	default:
		_, err := ParseAlgorithm(string(kind.Algorithm))
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

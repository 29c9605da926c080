package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
)

// MaxRequest is how many bytes a certificate request may have. One with an RSA key of 8192 bits has 2 KiB.
const MaxRequest = 16 << 10

// NewRequest makes a key, and a PKCS #10 request, in DER form, by which its holder proves to have it. The request names nobody: who
// signs it decides whom the certificate names.
func NewRequest(kind KeyKind) (request, keyPEM []byte, err error) {
	key, err := newKey(kind)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate request: generate key: %w", err)
	}
	if request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, nil, fmt.Errorf("certificate request: %w", err)
	}
	keyPEM, err = encodeKey(key)
	return request, keyPEM, err
}

// PublicKey is a key whose holder has proven to have it, of a kind that is strong enough to sign for.
type PublicKey struct{ key crypto.PublicKey }

// ParseRequest returns the public key of a PKCS #10 request in DER form, and nothing else of it: names, extensions and attributes are
// for who signs to decide. It refuses weak keys, and requests that are not signed by the key.
func ParseRequest(der []byte) (PublicKey, error) {
	if len(der) > MaxRequest {
		return PublicKey{}, fmt.Errorf("certificate request: it has %d bytes, and %d are the limit", len(der), MaxRequest)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return PublicKey{}, fmt.Errorf("certificate request: %w", err)
	}
	if err := strong(request.PublicKey); err != nil { // first: to verify by a huge key takes long
		return PublicKey{}, fmt.Errorf("certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return PublicKey{}, fmt.Errorf("certificate request: it is not signed by its key: %w", err)
	}
	return PublicKey{request.PublicKey}, nil
}

// Raw returns the DER form of the key, by which keys are told apart.
func (k PublicKey) Raw() ([]byte, error) {
	raw, err := x509.MarshalPKIXPublicKey(k.key)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return raw, nil
}

// strong refuses keys that are weak, or that take long to verify by.
func strong(public crypto.PublicKey) error {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("its ECDSA key is on the curve %s: use P-256, P-384 or P-521", key.Params().Name)
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("its RSA key has %d bits: use %d to %d", bits, minRSABits, maxRSABits)
		}
		if key.E != 65537 {
			return errors.New("its RSA key has another exponent than 65537")
		}
		return nil
	default:
		return errors.New("its key is of an unknown algorithm: use ECDSA, Ed25519 or RSA")
	}
}

// SignClient signs the certificate of a client that has a key already, and returns it as PEM. Every field of it comes from here.
func (a *CA) SignClient(commonName string, key PublicKey, validity Validity) ([]byte, error) {
	if commonName == "" || key.key == nil {
		return nil, errors.New("client certificate: a common name and a key are required")
	}
	validity, err := a.leafValidity(validity)
	if err != nil {
		return nil, fmt.Errorf("certificate of %q: %w", commonName, err)
	}
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, validity, key.key)
}

// sign completes the template, and signs it.
func (a *CA) sign(template *x509.Certificate, validity Validity, key crypto.PublicKey) ([]byte, error) {
	template.NotBefore, template.NotAfter = validity.NotBefore, validity.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %q: sign: %w", template.Subject.CommonName, err)
	}
	return encodeCertificate(der), nil
}

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
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
)

// MaxRequest is how many bytes a certificate request may have. One with an RSA key of 8192 bits has 2 KiB.
const MaxRequest = 16 << 10

// NewRequest makes a key, and a request by it; see RequestBy.
func NewRequest(kind KeyKind, commonName string) (request, keyPEM []byte, err error) {
	if keyPEM, err = NewKey(kind); err != nil {
		return nil, nil, fmt.Errorf("certificate request: %w", err)
	}
	request, err = RequestBy(keyPEM, commonName)
	return request, keyPEM, err
}

// RequestBy makes a PKCS #10 request, in DER form, by which the holder of a key that NewKey made proves to have it. The request names its
// holder by the common name, and by nothing else: who signs it may take it as it is, as cert-manager does, or decide by itself what is in
// the certificate.
func RequestBy(keyPEM []byte, commonName string) ([]byte, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("certificate request: its key is not in PEM form")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName}}, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request: %w", err)
	}
	return request, nil
}

// PublicKey is a key whose holder has proven to have it, of a kind that is strong enough to sign for.
type PublicKey struct{ key crypto.PublicKey }

// Request is a PKCS #10 request that its key has signed.
type Request struct {
	// Key is what to sign for. All else in a request is for who signs to decide.
	Key    PublicKey
	parsed *x509.CertificateRequest
}

// ParseRequest reads a PKCS #10 request in DER form. It refuses weak keys, and requests that are not signed by the key.
func ParseRequest(der []byte) (Request, error) {
	if len(der) > MaxRequest {
		return Request{}, fmt.Errorf("certificate request: it has %d bytes, and %d are the limit", len(der), MaxRequest)
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return Request{}, fmt.Errorf("certificate request: %w", err)
	}
	if err := strong(request.PublicKey); err != nil { // first: to verify by a huge key takes long
		return Request{}, fmt.Errorf("certificate request: %w", err)
	}
	if err := request.CheckSignature(); err != nil {
		return Request{}, fmt.Errorf("certificate request: it is not signed by its key: %w", err)
	}
	return Request{PublicKey{request.PublicKey}, request}, nil
}

// PEM returns the request in PEM form.
func (r Request) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: r.parsed.Raw})
}

// NamesOnly returns nil if the request asks for a certificate of that common name, and for nothing else: no other attribute of the subject, no
// other name, no extension. A signer that is given such a request cannot be talked into more.
func (r Request) NamesOnly(commonName string) error {
	names := r.parsed.Subject.Names // all of them: Subject.CommonName is the last one of several
	if len(names) != 1 || !names[0].Type.Equal(commonNameType()) || names[0].Value != commonName {
		return fmt.Errorf("certificate request: its subject is %.256q, and has to be %q", r.parsed.Subject, pkix.Name{CommonName: commonName})
	}
	var rest struct {
		Version      int
		Subject, Key asn1.RawValue
		Attributes   []asn1.RawValue `asn1:"tag:0"` // extensions are in one of them
	}
	if trailing, err := asn1.Unmarshal(r.parsed.RawTBSCertificateRequest, &rest); err != nil || len(trailing) > 0 {
		return errors.New("certificate request: its attributes cannot be read")
	}
	if len(rest.Attributes) > 0 {
		return errors.New("certificate request: it has attributes, such as extensions: it may have none")
	}
	return nil
}

// commonNameType is that of the attribute of a subject.
func commonNameType() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 4, 3} }

// Raw returns the DER form of the key, by which keys are told apart.
func (k PublicKey) Raw() ([]byte, error) {
	raw, err := x509.MarshalPKIXPublicKey(k.key)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	return raw, nil
}

// Is reports whether that is the key.
func (k PublicKey) Is(other crypto.PublicKey) bool {
	key, ok := k.key.(interface{ Equal(x crypto.PublicKey) bool })
	return ok && key.Equal(other)
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

// sign completes the template, and signs it.
func (a *CA) sign(template *x509.Certificate, validity Validity, key crypto.PublicKey) ([]byte, error) {
	template.NotBefore, template.NotAfter = validity.NotBefore, validity.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %q: sign: %w", holder(template), err)
	}
	return encodeCertificate(der), nil
}

package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"time"
)

const (
	// CALifetime is how long a CA is valid when its options do not say.
	CALifetime = 3650 * 24 * time.Hour
	// LeafLifetime is how long a certificate is valid when its options do not say, unless its CA ends earlier.
	LeafLifetime = 180 * 24 * time.Hour

	// backdate makes new certificates acceptable to machines whose clock is a little behind.
	backdate = 5 * time.Minute
)

// Validity is the time in which a certificate is valid. A zero NotBefore means a few minutes ago; a zero NotAfter means
// the default lifetime of its kind after NotBefore. X.509 keeps whole seconds.
type Validity struct {
	NotBefore time.Time
	NotAfter  time.Time
}

// resolve fills in the defaults and refuses an empty span.
func (v Validity) resolve(lifetime time.Duration) (Validity, error) {
	if v.NotBefore.IsZero() {
		v.NotBefore = time.Now().Add(-backdate)
	}
	if v.NotAfter.IsZero() {
		v.NotAfter = v.NotBefore.Add(lifetime)
	}
	if !v.NotAfter.After(v.NotBefore) {
		return v, fmt.Errorf("validity: ends at %s, not after its start at %s: choose a later end",
			v.NotAfter.UTC().Format(time.RFC3339), v.NotBefore.UTC().Format(time.RFC3339))
	}
	return v, nil
}

// CA is a certificate authority. It is safe for concurrent use.
type CA struct {
	certificate *x509.Certificate
	key         crypto.Signer
	pem         Pair
}

// CAOptions says what a CA is called and how long it lives.
type CAOptions struct {
	// CommonName is required: it is the issuer of every certificate.
	CommonName string
	Validity   Validity
	Key        KeyKind
}

// NewCA makes a self-signed CA with a new key.
func NewCA(options CAOptions) (*CA, error) {
	if options.CommonName == "" {
		return nil, errors.New("CA: no common name: give it one that users will recognise")
	}
	validity, err := options.Validity.resolve(CALifetime)
	if err != nil {
		return nil, fmt.Errorf("CA %q: %w", options.CommonName, err)
	}
	key, err := newKey(options.Key)
	if err != nil {
		return nil, fmt.Errorf("CA %q: generate key: %w", options.CommonName, err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: options.CommonName},
		NotBefore:             validity.NotBefore,
		NotAfter:              validity.NotAfter,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("CA %q: sign: %w", options.CommonName, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, fmt.Errorf("CA %q: %w", options.CommonName, err)
	}
	return LoadCA(encodeCertificate(der), keyPEM)
}

// LoadCA reads a CA from PEM: its certificate, and its private key in PKCS #8, PKCS #1 or SEC 1 form.
func LoadCA(certificatePEM, keyPEM []byte) (*CA, error) {
	pair := Pair{Certificate: certificatePEM, Key: keyPEM}
	loaded, err := pair.TLS()
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	ca, err := CAOf(loaded)
	if err != nil {
		return nil, err
	}
	ca.pem = pair
	return ca, nil
}

// CAOf returns the CA whose certificate, with those of the CAs above it if there are any, and key are loaded already.
func CAOf(pair tls.Certificate) (*CA, error) {
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("CA: its private key cannot sign")
	}
	if !pair.Leaf.IsCA {
		return nil, fmt.Errorf("CA: certificate of %q is not one of a CA: use one with the CA flag set", pair.Leaf.Subject)
	}
	ca := &CA{certificate: pair.Leaf, key: key}
	for _, der := range pair.Certificate {
		ca.pem.Certificate = append(ca.pem.Certificate, encodeCertificate(der)...)
	}
	var err error
	ca.pem.Key, err = encodeKey(key)
	return ca, err
}

// Certificate returns the CA's certificate. The caller must not change it.
func (a *CA) Certificate() *x509.Certificate { return a.certificate }

// PEM returns the CA's own certificate, with those above it that it was loaded with, and private key. The caller must not change them.
func (a *CA) PEM() Pair { return a.pem }

// Pair is a certificate and its private key (PKCS #8 when made by this package), both as PEM.
type Pair struct {
	Certificate []byte
	Key         []byte
}

// TLS returns the pair in the form that package crypto/tls uses, with Leaf set. It fails when the key is not the certificate's.
func (p Pair) TLS() (tls.Certificate, error) {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("key pair: %w", err)
	}
	return pair, nil
}

package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// minRSABits is the size of the smallest RSA key that is taken.
	minRSABits = 2048
	// maxKeys bounds how many keys a token without a key's thumbprint is tried against.
	maxKeys = 32
)

// Keys are what tokens are signed and verified with. They do not change, and are safe for concurrent use.
type Keys struct {
	signing   *key // nil when there are only public keys
	verifying []key
	methods   []string // the algorithms of those
}

// key is one key, with the one algorithm that it is used with.
type key struct {
	id      string
	method  jwt.SigningMethod
	private crypto.Signer // nil of one that only verifies
	public  jwt.VerificationKey
}

// ParseKeys reads keys from PEM text: PKCS #8 private keys and PKIX public keys. The first private key in signing signs; it
// and all others verify. Either may be empty, not both.
func ParseKeys(signing []byte, older ...[]byte) (*Keys, error) {
	keys := &Keys{}
	for i, text := range slices.Concat([][]byte{signing}, older) {
		found, err := parse(text)
		if err != nil {
			return nil, err
		}
		for _, one := range found {
			if i == 0 && keys.signing == nil && one.private != nil {
				keys.signing = &one
			}
			if !slices.ContainsFunc(keys.verifying, func(other key) bool { return other.id == one.id }) {
				keys.verifying = append(keys.verifying, one)
			}
		}
	}
	switch {
	case len(keys.verifying) == 0:
		return nil, errors.New("no key in PEM form: create one with: argocd-agentctl jwt create-key")
	case len(keys.verifying) > maxKeys:
		return nil, fmt.Errorf("%d keys, and %d is the limit: remove the oldest", len(keys.verifying), maxKeys)
	}
	keys.methods = methodNames(keys.verifying)
	return keys, nil
}

// CanSign reports whether Issue has a key.
func (k *Keys) CanSign() bool { return k.signing != nil }

// Public returns the public part of the key that signs, nil without one.
func (k *Keys) Public() crypto.PublicKey {
	if k.signing == nil {
		return nil
	}
	return k.signing.public
}

// Thumbprints lists the keys that verify: base64url of SHA-256 of the public key in its PKIX form. It is the token's
// header kid.
func (k *Keys) Thumbprints() []string {
	var ids []string
	for _, one := range k.verifying {
		ids = append(ids, one.id)
	}
	return ids
}

// parse reads all keys of PEM text.
func parse(text []byte) ([]key, error) {
	var keys []key
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		one, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", len(keys)+1, err)
		}
		keys = append(keys, one)
	}
	return keys, nil
}

// parseBlock reads one key.
func parseBlock(block *pem.Block) (key, error) {
	switch block.Type {
	case "PRIVATE KEY":
		private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return key{}, fmt.Errorf("private key: %w", err)
		}
		signer, ok := private.(crypto.Signer)
		if !ok {
			return key{}, fmt.Errorf("private key of type %T: it cannot sign: use RSA, ECDSA or Ed25519", private)
		}
		one, err := describe(signer.Public())
		one.private = signer
		return one, err
	case "PUBLIC KEY":
		public, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return key{}, fmt.Errorf("public key: %w", err)
		}
		return describe(public)
	default:
		return key{}, fmt.Errorf("PEM block %q: want %q (PKCS #8) or %q", block.Type, "PRIVATE KEY", "PUBLIC KEY")
	}
}

// describe says what a key is used with, and names it.
func describe(public crypto.PublicKey) (key, error) {
	method, err := methodOf(public)
	if err != nil {
		return key{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return key{}, fmt.Errorf("public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return key{id: base64.RawURLEncoding.EncodeToString(sum[:]), method: method, public: public}, nil
}

// methodOf returns the one algorithm that a key is used with.
func methodOf(public crypto.PublicKey) (jwt.SigningMethod, error) {
	switch public := public.(type) {
	case *rsa.PublicKey:
		if public.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("RSA key of %d bits: use one of %d or more", public.N.BitLen(), minRSABits)
		}
		return jwt.SigningMethodRS512, nil
	case *ecdsa.PublicKey:
		switch public.Curve {
		case elliptic.P256():
			return jwt.SigningMethodES256, nil
		case elliptic.P384():
			return jwt.SigningMethodES384, nil
		case elliptic.P521():
			return jwt.SigningMethodES512, nil
		}
		return nil, fmt.Errorf("ECDSA key on curve %s: use P-256, P-384 or P-521", public.Params().Name)
	case ed25519.PublicKey:
		return jwt.SigningMethodEdDSA, nil
	default:
		return nil, fmt.Errorf("key of type %T: use RSA, ECDSA or Ed25519", public)
	}
}

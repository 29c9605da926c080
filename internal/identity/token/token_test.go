package token_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// private makes a private key, in PKCS #8 PEM.
func private(tb testing.TB, algorithm pki.Algorithm) []byte {
	tb.Helper()
	key, err := pki.NewKey(pki.KeyKind{Algorithm: algorithm})
	require.NoError(tb, err)
	return key
}

// signer is the private key in the form that package jwt takes.
func signer(tb testing.TB, text []byte) any {
	tb.Helper()
	block, _ := pem.Decode(text)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	require.NoError(tb, err)
	return key
}

// public returns the public half of a private key, in PKIX PEM.
func public(tb testing.TB, text []byte) []byte {
	tb.Helper()
	key, ok := signer(tb, text).(crypto.Signer)
	require.True(tb, ok)
	return encode(tb, key.Public())
}

func encode(tb testing.TB, key any) []byte {
	tb.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	require.NoError(tb, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func parse(tb testing.TB, signing []byte, older ...[]byte) *token.Keys {
	tb.Helper()
	keys, err := token.ParseKeys(signing, older...)
	require.NoError(tb, err)
	return keys
}

func TestIssuedTokenVerifies(t *testing.T) {
	for algorithm, method := range map[pki.Algorithm]string{
		pki.RSA: "RS512", pki.ECDSAP256: "ES256", pki.ECDSAP384: "ES384", pki.ECDSAP521: "ES512", pki.Ed25519: "EdDSA",
	} {
		t.Run(string(algorithm), func(t *testing.T) {
			keys := parse(t, private(t, algorithm))
			began := time.Now().Truncate(time.Second) // as it is written down
			raw, err := keys.Issue("agent-a", time.Hour)
			require.NoError(t, err)
			ended := time.Now()
			says, err := keys.Verify(raw)
			require.NoError(t, err)
			require.Equal(t, "agent-a", string(says.Agent))
			require.WithinRange(t, says.NotAfter, began.Add(time.Hour), ended.Add(time.Hour))
			require.Equal(t, []string{says.Key}, keys.Thumbprints())
			parsed, _, err := jwt.NewParser().ParseUnverified(raw, jwt.MapClaims{})
			require.NoError(t, err)
			require.Equal(t, method, parsed.Method.Alg())
			require.Equal(t, says.Key, parsed.Header["kid"])
		})
	}
}

func TestTokenOfOlderKeyVerifies(t *testing.T) {
	before, after := private(t, pki.ECDSAP256), private(t, pki.Ed25519)
	issued, err := parse(t, before).Issue("a", time.Hour)
	require.NoError(t, err)
	rotated := parse(t, after, public(t, before))
	_, err = rotated.Verify(issued)
	require.NoError(t, err)
	newer, err := rotated.Issue("a", time.Hour)
	require.NoError(t, err)
	_, err = parse(t, nil, public(t, after)).Verify(newer)
	require.NoError(t, err, "public keys are enough to verify")
	_, err = parse(t, after).Verify(issued)
	require.ErrorIs(t, err, token.ErrRefused)
	require.ErrorContains(t, err, "not signed by a key that is known here")

	_, err = parse(t, nil, public(t, after)).Issue("a", time.Hour)
	require.ErrorContains(t, err, "only public keys are here")
}

// claims are good ones, to be spoilt.
func claims() jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"iss": token.Issuer, "aud": token.Audience, "sub": "agent-a",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

func TestInvalidTokenIsRefused(t *testing.T) {
	text := private(t, pki.ECDSAP256)
	keys := parse(t, text)
	sign := func(change func(jwt.MapClaims)) string {
		c := claims()
		change(c)
		raw, err := jwt.NewWithClaims(jwt.SigningMethodES256, c).SignedString(signer(t, text))
		require.NoError(t, err)
		return raw
	}
	_, err := keys.Verify(sign(func(jwt.MapClaims) {}))
	require.NoError(t, err, "without a key's thumbprint, all that fit are tried")
	_, err = keys.Verify(sign(func(c jwt.MapClaims) { c["aud"] = []string{"x", token.Audience} }))
	require.NoError(t, err)

	for want, change := range map[string]func(jwt.MapClaims){
		"tokens that never expire":      func(c jwt.MapClaims) { delete(c, "exp") },
		"(nbf)":                         func(c jwt.MapClaims) { delete(c, "nbf") },
		"(iat)":                         func(c jwt.MapClaims) { delete(c, "iat") },
		"it must be for":                func(c jwt.MapClaims) { c["aud"] = "argocd-agent-server-access" },
		"it must be from":               func(c jwt.MapClaims) { c["iss"] = "somebody" },
		"issue a new one":               func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Minute).Unix() },
		"compare the clocks":            func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Minute).Unix() },
		"used before issued":            func(c jwt.MapClaims) { c["iat"] = time.Now().Add(time.Minute).Unix() },
		"agent name \"\": a lowercase":  func(c jwt.MapClaims) { delete(c, "sub") },
		"its subject":                   func(c jwt.MapClaims) { c["sub"] = "../b" },
		"could not JSON decode claim":   func(c jwt.MapClaims) { c["exp"] = "tomorrow" },
		"could not JSON decode claim: ": func(c jwt.MapClaims) { c["sub"] = []string{"a"} },
	} {
		t.Run(want, func(t *testing.T) {
			_, err := keys.Verify(sign(change))
			require.ErrorIs(t, err, token.ErrRefused)
			require.ErrorContains(t, err, want)
		})
	}
	good := sign(func(jwt.MapClaims) {})
	for name, raw := range map[string]string{
		"empty": "", "rubbish": "x.y.z", "two parts": good[:strings.LastIndex(good, ".")], "long": strings.Repeat("x", 1<<20),
		"another signature": good[:len(good)-4] + "AAAA", "spaces": " " + good, "more after it": good + ".x",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := keys.Verify(raw)
			require.ErrorIs(t, err, token.ErrRefused)
		})
	}
}

// A key is used with its own algorithm only, whatever the token claims.
func TestTokenWithAnotherAlgorithmIsRefused(t *testing.T) {
	text := private(t, pki.RSA)
	key := signer(t, text)
	keys := parse(t, text, private(t, pki.Ed25519))
	for name, sign := range map[string]func() (string, error){
		"none": func() (string, error) {
			return jwt.NewWithClaims(jwt.SigningMethodNone, claims()).SignedString(jwt.UnsafeAllowNoneSignatureType)
		},
		"HMAC with the public key": func() (string, error) {
			return jwt.NewWithClaims(jwt.SigningMethodHS512, claims()).SignedString(public(t, text))
		},
		"RS256": func() (string, error) { return jwt.NewWithClaims(jwt.SigningMethodRS256, claims()).SignedString(key) },
		"PS512": func() (string, error) { return jwt.NewWithClaims(jwt.SigningMethodPS512, claims()).SignedString(key) },
		"another key's thumbprint": func() (string, error) {
			forged := jwt.NewWithClaims(jwt.SigningMethodRS512, claims())
			forged.Header["kid"] = keys.Thumbprints()[1]
			return forged.SignedString(key)
		},
		"a thumbprint that is no text": func() (string, error) {
			forged := jwt.NewWithClaims(jwt.SigningMethodRS512, claims())
			forged.Header["kid"] = 7
			return forged.SignedString(key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := sign()
			require.NoError(t, err)
			_, err = keys.Verify(raw)
			require.ErrorIs(t, err, token.ErrRefused)
		})
	}
	rs512, err := jwt.NewWithClaims(jwt.SigningMethodRS512, claims()).SignedString(key)
	require.NoError(t, err)
	_, err = keys.Verify(rs512)
	require.NoError(t, err)
}

func TestInvalidKeysAndClaimsAreRefused(t *testing.T) {
	modulus := new(big.Int).SetBit(big.NewInt(1), 1023, 1)
	weak := encode(t, &rsa.PublicKey{N: modulus, E: 65537})
	for want, text := range map[string][]byte{
		"no key in PEM form":   []byte("rubbish"),
		"want \"PRIVATE KEY\"": []byte("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"),
		"private key: ":        []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
		"public key: ":         []byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
		"RSA key of 1024 bits": weak,
	} {
		_, err := token.ParseKeys(text)
		require.ErrorContains(t, err, want)
	}
	keys := parse(t, private(t, pki.ECDSAP256))
	for _, name := range []string{"", "A", "a.b", strings.Repeat("a", 64)} {
		_, err := keys.Issue(name, time.Hour)
		require.ErrorContains(t, err, "agent name")
	}
	_, err := keys.Issue("a", 0)
	require.ErrorContains(t, err, "above zero")
}

func FuzzVerify(f *testing.F) {
	text := private(f, pki.Ed25519)
	keys := parse(f, text)
	good, err := keys.Issue("a", time.Hour)
	require.NoError(f, err)
	f.Add(good)
	f.Add("")
	f.Add("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.")
	header, _, _ := strings.Cut(good, ".")
	f.Add(header + ".e30." + good[strings.LastIndex(good, ".")+1:])
	f.Fuzz(func(t *testing.T, raw string) {
		says, err := keys.Verify(raw)
		if err != nil {
			require.ErrorIs(t, err, token.ErrRefused)
			return
		}
		// Only one token was signed; whatever else is believed is the same one.
		require.Equal(t, "a", string(says.Agent))
		payload, err := base64.RawURLEncoding.DecodeString(strings.Split(raw, ".")[1])
		require.NoError(t, err)
		require.True(t, json.Valid(payload))
		require.Equal(t, strings.Split(good, ".")[:2], strings.Split(raw, ".")[:2])
	})
}

package jwtsvid_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/jwtsvid"
)

const (
	audience = "argocd-agent-principal"
	agentID  = "spiffe://spoke.test/agent/berlin"
)

// authority signs tokens, as a SPIRE server does.
type authority struct {
	key  *ecdsa.PrivateKey
	name string
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return authority{key, name}
}

// token is one of a subject, issued now, which differs from all others by its nonce.
func (a authority) token(t *testing.T, subject string, expiry time.Time, audience ...string) string {
	t.Helper()
	return a.sign(t, jwt.Claims{
		Subject: subject, Audience: append(audience, rand.Text()), Expiry: jwt.NewNumericDate(expiry), IssuedAt: jwt.NewNumericDate(time.Now()),
	})
}

// sign returns a token with these claims.
func (a authority) sign(t *testing.T, claims jwt.Claims) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: a.key}, (&jose.SignerOptions{}).WithHeader("kid", a.name))
	require.NoError(t, err)
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	return text
}

// trust has the verifier trust these authorities for spoke.test.
func trust(t *testing.T, v *jwtsvid.Verifier, authorities ...authority) {
	t.Helper()
	bundle := jwtbundle.New(spiffeid.RequireTrustDomainFromString("spoke.test"))
	for _, a := range authorities {
		require.NoError(t, bundle.AddJWTAuthority(a.name, a.key.Public()))
	}
	v.OnJWTBundlesUpdate(jwtbundle.NewSet(bundle))
}

func TestTokenProvesOnce(t *testing.T) {
	t.Parallel()
	log, changes := new(bytes.Buffer), 0
	v := jwtsvid.NewVerifier(jwtsvid.Options{
		Socket: "unix:///none", Audience: audience, Changed: func() { changes++ }, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	key, stranger := newAuthority(t, "key"), newAuthority(t, "key")
	end := time.Now().Add(5 * time.Minute).Truncate(time.Second)
	early := key.token(t, agentID, end, audience)
	_, err := v.Prove(early)
	require.ErrorContains(t, err, "has not answered yet")
	require.ErrorContains(t, v.Ready(), "has not answered yet")

	trust(t, v, key)
	require.NoError(t, v.Ready())
	require.Equal(t, 1, changes)
	proof, err := v.Prove(early)
	require.NoError(t, err)
	require.Equal(t, identity.Proof{URIs: []string{agentID}, NotAfter: end.UTC()}, identity.Proof{URIs: proof.URIs, NotAfter: proof.NotAfter.UTC()})
	require.NoError(t, v.VerifyToken(early))
	_, err = v.Prove(early)
	require.ErrorContains(t, err, "was shown before")

	for name, c := range map[string]struct{ token, want string }{
		"other audience":       {key.token(t, agentID, end, "other"), `for the audience "argocd-agent-principal"`},
		"expired":              {key.token(t, agentID, time.Now().Add(-30*time.Second), audience), "expired"},
		"long expired":         {key.token(t, agentID, time.Now().Add(-time.Hour), audience), "expired"},
		"another key":          {stranger.token(t, agentID, end, audience), "cryptographic primitive"},
		"another trust domain": {key.token(t, "spiffe://other.test/agent/berlin", end, audience), "no bundle found for trust domain"},
		"no SPIFFE ID":         {key.token(t, "berlin", end, audience), "sub"},
		"no token":             {"x.y.z", "token"},
		"nothing":              {"", "token"},
	} {
		_, err := v.Prove(c.token)
		require.ErrorContains(t, err, c.want, name)
		if c.token != "" {
			require.NotContains(t, err.Error(), c.token, name)
		}
	}

	trust(t, v, newAuthority(t, "newer"))
	require.Equal(t, 2, changes)
	require.Error(t, v.VerifyToken(early), "its key is gone")
	v.OnJWTBundlesWatchError(errors.New("no socket"))
	v.OnJWTBundlesWatchError(errors.New("no socket"))
	require.NoError(t, v.Ready(), "the last ones are kept")
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("no socket")))
}

// Whoever overheard a token can write it in another way that is as good: the signature of ECDSA has a twin, base64 has bits that nobody
// reads, and the library skips white space.
func TestTokenInOtherWordsProvesNothing(t *testing.T) {
	t.Parallel()
	v := jwtsvid.NewVerifier(jwtsvid.Options{Audience: audience, Changed: func() {}, Logger: slog.New(slog.DiscardHandler)})
	key := newAuthority(t, "key")
	trust(t, v, key)
	token := key.token(t, agentID, time.Now().Add(5*time.Minute), audience)
	_, err := v.Prove(token)
	require.NoError(t, err)

	signed, signature := token[:strings.LastIndexByte(token, '.')+1], token[strings.LastIndexByte(token, '.')+1:]
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	require.NoError(t, err)
	twin := new(big.Int).Sub(key.key.Params().N, new(big.Int).SetBytes(raw[32:]))
	twin.FillBytes(raw[32:])
	for name, other := range map[string]string{
		"twin of the signature":  signed + base64.RawURLEncoding.EncodeToString(raw),
		"bits that nobody reads": token[:len(token)-1] + string(token[len(token)-1]+1), // 86 digits are 516 bits, for 512
		"white space":            token + " ",
		"white space within":     strings.Replace(token, ".", ".\n\t", 1),
	} {
		require.NotEqual(t, token, other)
		_, err := v.Prove(other)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), other, name)
	}
}

// What was shown to another principal, or to the one that ran before this one, is not known here. So only what is new is taken.
func TestTokenThatMayHaveBeenShownElsewhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		key := newAuthority(t, "key")
		started := time.Now()
		v := jwtsvid.NewVerifier(jwtsvid.Options{Audience: audience, Changed: func() {}, Logger: slog.New(slog.DiscardHandler)})
		trust(t, v, key)
		shows := func(issued *jwt.NumericDate) error {
			token := key.sign(t, jwt.Claims{
				Subject: agentID, Audience: jwt.Audience{audience, rand.Text()}, Expiry: jwt.NewNumericDate(started.Add(2 * time.Hour)), IssuedAt: issued,
			})
			_, err := v.Prove(token)
			if err == nil {
				require.NoError(t, v.VerifyToken(token))
			}
			return err
		}
		ago := func(d time.Duration) *jwt.NumericDate { return jwt.NewNumericDate(time.Now().Add(-d)) }

		require.NoError(t, shows(ago(0)))
		require.NoError(t, shows(ago(5*time.Second)), "clocks differ")
		require.NoError(t, shows(ago(-time.Minute)))
		require.ErrorContains(t, shows(ago(6*time.Second)), "issued at 1999-12-31T23:59:54Z, before this principal started")
		<-time.After(time.Hour)
		require.NoError(t, shows(ago(time.Minute)))
		require.ErrorContains(t, shows(ago(61*time.Second)), "issued at 2000-01-01T00:58:59Z, and a stream needs one of the last 1m0s: compare the clocks")
		require.ErrorContains(t, shows(ago(-2*time.Minute)), "issued in the future")
		require.ErrorContains(t, shows(nil), "does not say when it was issued")
	})
}

// A stream goes on by a token that is too old to be shown.
func TestTokenIsGoodToItsEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		key := newAuthority(t, "key")
		v := jwtsvid.NewVerifier(jwtsvid.Options{Audience: audience, Changed: func() {}, Logger: slog.New(slog.DiscardHandler)})
		trust(t, v, key)
		token := key.token(t, agentID, time.Now().Add(time.Hour), audience)
		_, err := v.Prove(token)
		require.NoError(t, err)
		<-time.After(time.Hour)
		require.NoError(t, v.VerifyToken(token))
		<-time.After(time.Second)
		require.ErrorContains(t, v.VerifyToken(token), "expired")
	})
}

package token

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

const (
	// Audience is what a token for kubeproxy is made for. It is that of argocd-agent's own tokens.
	Audience = "argocd-agent-server-resource-proxy"
	// Issuer is who makes them.
	Issuer = "argocd-agent-server"

	// leeway is how far the clocks of two machines may differ.
	leeway = 30 * time.Second
	// maxLength bounds what is looked at: a caller chose it. Our own are below 1 KiB.
	maxLength = 8 << 10
)

// ErrRefused is wrapped by every error about an invalid token.
var ErrRefused = errors.New("bearer token")

// Token is what a verified token says.
type Token struct {
	// Agent is whom it is for.
	Agent identity.Agent
	// NotAfter is when it ends.
	NotAfter time.Time
	// Key is the thumbprint of the key that signed it.
	Key string
}

// Issue returns a token for the agent that is good from now on for so long.
func (k *Keys) Issue(agent string, lifetime time.Duration) (string, error) {
	name, err := identity.ParseAgent(agent)
	switch {
	case err != nil:
		return "", fmt.Errorf("issue a token: %w", err)
	case lifetime <= 0:
		return "", fmt.Errorf("issue a token for agent %s: it must end after its beginning: choose a lifetime above zero", name)
	case k.signing == nil:
		return "", fmt.Errorf("issue a token for agent %s: only public keys are here: add the private key, jwt.key", name)
	}
	now := time.Now()
	token := jwt.NewWithClaims(k.signing.method, jwt.RegisteredClaims{
		Issuer: Issuer, Subject: string(name), Audience: jwt.ClaimStrings{Audience}, ID: rand.Text(),
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(lifetime)),
	})
	token.Header["kid"] = k.signing.id
	signed, err := token.SignedString(k.signing.private)
	if err != nil {
		return "", fmt.Errorf("issue a token for agent %s: sign: %w", name, err)
	}
	return signed, nil
}

// Verify returns what the token says, if one of the keys signed it and it is good now. Its errors wrap ErrRefused, and
// say what is wrong in words for the caller.
func (k *Keys) Verify(raw string) (Token, error) {
	if len(raw) > maxLength {
		return Token{}, fmt.Errorf("%w: it has %d characters, and %d is the limit", ErrRefused, len(raw), maxLength)
	}
	var claims jwt.RegisteredClaims
	parser := jwt.NewParser(jwt.WithValidMethods(k.methods), jwt.WithStrictDecoding(), jwt.WithLeeway(leeway),
		jwt.WithAudience(Audience), jwt.WithIssuer(Issuer), jwt.WithIssuedAt())
	parsed, err := parser.ParseWithClaims(raw, &claims, k.fitting)
	if err != nil {
		return Token{}, fmt.Errorf("%w: %w%s", ErrRefused, err, hint(err, claims))
	}
	if err := complete(claims); err != nil {
		return Token{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	agent, err := identity.ParseAgent(claims.Subject)
	if err != nil {
		return Token{}, fmt.Errorf("%w: its subject: %w", ErrRefused, err)
	}
	id, _ := parsed.Header["kid"].(string)
	return Token{Agent: agent, NotAfter: claims.ExpiresAt.Time, Key: id}, nil
}

// complete refuses a token that leaves out when it is good. Those of argocd-agent never end; whoever once saw such a token
// would have the agent's cluster for ever.
func complete(claims jwt.RegisteredClaims) error {
	switch {
	case claims.ExpiresAt == nil:
		return errors.New("it has no end (exp): tokens that never expire, such as those of older releases, are not accepted: " +
			"issue a new one with: argocd-agentctl jwt issue NAME")
	case claims.NotBefore == nil:
		return errors.New("it does not say from when on it is good (nbf): issue a new one")
	case claims.IssuedAt == nil:
		return errors.New("it does not say when it was issued (iat): issue a new one")
	default:
		return nil
	}
}

// hint says what to do about an error, where the library's own text does not.
func hint(err error, claims jwt.RegisteredClaims) string {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired) && claims.ExpiresAt != nil:
		return fmt.Sprintf(" (at %s): issue a new one", claims.ExpiresAt.UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return ": compare the clocks of both machines"
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return fmt.Sprintf(": it must be for %q", Audience)
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return fmt.Sprintf(": it must be from %q", Issuer)
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return ": " + unknownKey
	default:
		return ""
	}
}

// unknownKey is why a signature is refused.
const unknownKey = "it was not signed by a key that is known here: issue a new one, or keep the older public key beside jwt.key"

// fitting returns the keys that may have signed the token: the one that it names, or else all of its algorithm. A key
// never verifies what another algorithm made, whatever the token claims.
func (k *Keys) fitting(token *jwt.Token) (any, error) {
	id, named := token.Header["kid"]
	var set jwt.VerificationKeySet
	for _, one := range k.verifying {
		if one.method.Alg() == token.Method.Alg() && (!named || one.id == id) {
			set.Keys = append(set.Keys, one.public)
		}
	}
	if len(set.Keys) == 0 {
		return nil, errors.New(unknownKey)
	}
	return set, nil
}

// methodNames lists the algorithms of the keys.
func methodNames(keys []key) []string {
	var names []string
	for _, one := range keys {
		if !slices.Contains(names, one.method.Alg()) {
			names = append(names, one.method.Alg())
		}
	}
	return names
}

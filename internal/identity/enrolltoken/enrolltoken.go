// Package enrolltoken is what argocd-agentctl, the principal and agents share of enrollment: the token by which an agent gets its first
// certificate, and how the hub remembers it.
package enrolltoken

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// SecretName is the Secret in Argo CD's namespace on the hub that remembers tokens: one key for each agent, none of which is a token.
const SecretName = "argocd-agent-enrollment-tokens"

// secretBytes is how many random bytes a token has: nobody guesses them, so a plain hash keeps them.
const secretBytes = 32

// Token is what an agent shows once. It is good for the agent that it names.
type Token struct {
	Agent  identity.Agent
	secret string
}

// New makes a token for an agent.
func New(agent identity.Agent) Token {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails
	return Token{agent, base64.RawURLEncoding.EncodeToString(secret)}
}

// Parse reads the text of a token. Its errors contain none of it.
func Parse(text string) (Token, error) {
	name, secret, ok := strings.Cut(strings.TrimSpace(text), ".")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	if !ok || err != nil || len(raw) != secretBytes {
		return Token{}, errors.New("no enrollment token: copy all of what argocd-agentctl agent token create prints")
	}
	agent, err := identity.ParseAgent(name)
	if err != nil {
		return Token{}, errors.New("no enrollment token: it does not begin with the name of an agent")
	}
	return Token{agent, secret}, nil
}

// Text is what Parse reads.
func (t Token) Text() string { return string(t.Agent) + "." + t.secret }

// String keeps the token out of logs.
func (t Token) String() string { return string(t.Agent) + ".…" }

// hash is of the whole token, so that it holds for its agent alone.
func (t Token) hash() string { return digest([]byte(t.Text())) }

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Entry is what the hub remembers of a token.
type Entry struct {
	// SHA256 is the hash of the token.
	SHA256  string    `json:"sha256"`
	Expires time.Time `json:"expires"`
	// Key is the hash of the public key that the token was used for, empty before.
	Key string `json:"key,omitempty"`
	// Labels and Annotations are what the operator who made the token says of the agent's cluster.
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// NewEntry returns what is remembered of a new token.
func NewEntry(t Token, expires time.Time) Entry {
	return Entry{SHA256: t.hash(), Expires: expires.UTC().Truncate(time.Second)}
}

// Decode reads an entry as it is kept in the Secret.
func Decode(kept []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(kept, &e); err != nil {
		return Entry{}, errors.New("it is no entry of an enrollment token: make another with: argocd-agentctl agent token create")
	}
	return e, nil
}

// Encode returns the entry as it is kept in the Secret.
func (e Entry) Encode() ([]byte, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("enrollment token: %w", err)
	}
	return text, nil
}

// Why a token is refused. Only who has it learns the second and third.
var (
	ErrUnknown = errors.New("the enrollment token is not known: make one with: argocd-agentctl agent token create")
	ErrExpired = errors.New("the enrollment token has expired: make another with: argocd-agentctl agent token create")
	ErrUsed    = errors.New("the enrollment token was used for another key already: make another with: argocd-agentctl agent token create; " +
		"if nobody else should have it, block the agent until then")
)

// Redeem returns the entry that is kept once a token is used for a public key, and whether that differs from before. A token is for one
// key: who repeats a request whose answer was lost may have it answered again.
func Redeem(kept []byte, t Token, publicKey []byte, now time.Time) (entry Entry, changed bool, err error) {
	if len(kept) == 0 {
		return Entry{}, false, ErrUnknown
	}
	if entry, err = Decode(kept); err != nil {
		return Entry{}, false, ErrUnknown
	}
	key := digest(publicKey)
	switch {
	case subtle.ConstantTimeCompare([]byte(entry.SHA256), []byte(t.hash())) != 1:
		return Entry{}, false, ErrUnknown
	case !now.Before(entry.Expires):
		return Entry{}, false, ErrExpired
	case entry.Key != "" && entry.Key != key:
		return Entry{}, false, ErrUsed
	}
	changed = entry.Key == ""
	entry.Key = key
	return entry, changed, nil
}

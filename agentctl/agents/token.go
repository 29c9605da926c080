package agents

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
)

// Token is what is known of a bearer token.
type Token struct {
	// Agent and NotAfter are what it says, if it is to be believed.
	Agent    string     `json:"agent,omitempty"`
	NotAfter *time.Time `json:"notAfter,omitempty"`

	refused error
}

// tokenKeys are what tokens are verified with, or why they cannot be.
type tokenKeys struct {
	keys    *token.Keys
	missing error
}

// readKeys reads the keys of a Secret, which is nil if there is none.
func readKeys(s *corev1.Secret, hub *cluster.Client) tokenKeys {
	if s == nil {
		return tokenKeys{missing: fmt.Errorf("%s: not found: create it with: argocd-agentctl jwt create-key", hub.Secret(signingkey.SecretName))}
	}
	keys, err := signingkey.Read(s.Data)
	if err != nil {
		return tokenKeys{missing: fmt.Errorf("%s: %w", hub.Secret(signingkey.SecretName), err)}
	}
	return tokenKeys{keys: keys}
}

// describe says what a token says; nil of none.
func (k tokenKeys) describe(raw string) *Token {
	if raw == "" {
		return nil
	}
	if k.missing != nil {
		return &Token{refused: fmt.Errorf("bearer token: it cannot be verified: %w", k.missing)}
	}
	says, err := k.keys.Verify(raw)
	if err != nil {
		return &Token{refused: err}
	}
	return &Token{Agent: string(says.Agent), NotAfter: &says.NotAfter}
}

// problems says why the resource proxy would not take Argo CD to the agent by this token.
func (t *Token) problems(agent string) []string {
	switch {
	case t.refused != nil:
		return []string{t.refused.Error()}
	case t.Agent != agent:
		return []string{fmt.Sprintf("bearer token: it is for agent %s: the resource proxy takes Argo CD to that one", t.Agent)}
	default:
		return nil
	}
}

package place

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Outcome is what became of a Secret.
type Outcome string

// What becomes of Secrets.
const (
	Created   Outcome = "created"
	Unchanged Outcome = "unchanged"
	Replaced  Outcome = "replaced"
)

// Change says how a Secret is wanted. A good Secret stays as it is, so that a command may be repeated. A Secret that is not
// as wanted is replaced only when the user asked for it.
type Change struct {
	Name string
	// Type is that of a new Secret. An existing one keeps its own, which the API server lets nobody change.
	Type corev1.SecretType
	// Differs says why an existing Secret is not as wanted; nothing if it is.
	Differs func(existing *corev1.Secret) []string
	// Refuse says why an existing Secret must not be replaced, whoever asks; it may be nil.
	Refuse func(existing *corev1.Secret) error
	// Write makes an existing or a new Secret as wanted. It has Data.
	Write func(secret *corev1.Secret) error
	// Describe says what is in the Secret after that, and what a user should look after.
	Describe func(secret *corev1.Secret) (about string, notes []string, err error)
	// Replace is whether to replace an existing Secret, and Flag the flag by which a user asks for it.
	Replace bool
	Flag    string
}

// Put makes a Secret as wanted.
func (p *Place) Put(ctx context.Context, c Change) (Result, error) {
	secret, outcome, err := p.put(ctx, c)
	result := Result{Where: p.Secret(c.Name), Outcome: outcome}
	if err == nil {
		result.About, result.Notes, err = c.Describe(secret)
	}
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", result.Where, err)
	}
	return result, nil
}

func (p *Place) put(ctx context.Context, c Change) (*corev1.Secret, Outcome, error) {
	existing, err := p.core.Secrets(p.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return p.create(ctx, c)
	}
	if err != nil {
		return nil, "", p.explain(err)
	}
	differences := c.Differs(existing)
	if len(differences) == 0 && !c.Replace {
		return existing, Unchanged, nil
	}
	if c.Refuse != nil {
		if err := c.Refuse(existing); err != nil {
			return nil, "", fmt.Errorf("it exists already, and is not replaced: %w", err)
		}
	}
	if !c.Replace {
		return nil, "", fmt.Errorf("it exists already, and is not as wanted: %s: replace it with %s", strings.Join(differences, "; "), c.Flag)
	}
	return p.replace(ctx, c, existing)
}

func (p *Place) create(ctx context.Context, c Change) (*corev1.Secret, Outcome, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: p.Namespace}, Type: c.Type, Data: map[string][]byte{},
	}
	if err := c.Write(secret); err != nil {
		return nil, "", err
	}
	secret, err := p.core.Secrets(p.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	return secret, Created, p.explain(err)
}

func (p *Place) replace(ctx context.Context, c Change, secret *corev1.Secret) (*corev1.Secret, Outcome, error) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if err := c.Write(secret); err != nil {
		return nil, "", err
	}
	secret, err := p.core.Secrets(p.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	return secret, Replaced, p.explain(err)
}

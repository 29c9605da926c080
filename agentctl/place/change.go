package place

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// Change says how a Secret is wanted. What is there and will do stays as it is, so that a step may be repeated; what is there
// and will not do is replaced only when a person said so.
type Change struct {
	Name string
	// Differs says why what is there will not do; nothing if it will.
	Differs func(there *corev1.Secret) []string
	// Refuse says why what is there is not to be replaced, whoever asks; it may be nil.
	Refuse func(there *corev1.Secret) error
	// Write makes what is there, or a new Secret, as wanted.
	Write func(secret *corev1.Secret) error
	// Replace is whether to replace what is there, and Flag the flag by which a person says so.
	Replace bool
	Flag    string
}

// Put makes a Secret as wanted, and returns it as it is then.
func (p *Place) Put(ctx context.Context, c Change) (*corev1.Secret, Outcome, error) {
	there, err := p.Get(ctx, c.Name)
	if err != nil {
		return nil, "", err
	}
	if there == nil {
		return p.create(ctx, c)
	}
	differences := c.Differs(there)
	if len(differences) == 0 && !c.Replace {
		return there, Unchanged, nil
	}
	if c.Refuse != nil {
		if err := c.Refuse(there); err != nil {
			return nil, "", fmt.Errorf("%s: it is there already, and is not replaced: %w", p.Secret(c.Name), err)
		}
	}
	if !c.Replace {
		return nil, "", fmt.Errorf("%s: it is there already, and will not do: %s: replace it with %s",
			p.Secret(c.Name), strings.Join(differences, "; "), c.Flag)
	}
	return p.replace(ctx, c, there)
}

func (p *Place) create(ctx context.Context, c Change) (*corev1.Secret, Outcome, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: p.Namespace}}
	if err := c.Write(secret); err != nil {
		return nil, "", fmt.Errorf("%s: %w", p.Secret(c.Name), err)
	}
	secret, err := p.core.Secrets(p.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", p.Secret(c.Name), p.explain(err))
	}
	return secret, Created, nil
}

func (p *Place) replace(ctx context.Context, c Change, there *corev1.Secret) (*corev1.Secret, Outcome, error) {
	kind := there.Type
	if err := c.Write(there); err != nil {
		return nil, "", fmt.Errorf("%s: %w", p.Secret(c.Name), err)
	}
	there.Type = kind // which the API server lets nobody change
	secret, err := p.core.Secrets(p.Namespace).Update(ctx, there, metav1.UpdateOptions{})
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", p.Secret(c.Name), p.explain(err))
	}
	return secret, Replaced, nil
}

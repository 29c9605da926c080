package cluster

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
	Printed   Outcome = "printed"
	Deleted   Outcome = "deleted"
)

// Changed is what becomes of workloads whose Pods are to be others.
const Changed Outcome = "changed"

// What becomes of entries of the blocklist.
const (
	Blocked   Outcome = "blocked"
	Unblocked Outcome = "unblocked"
)

// Change is the wanted state of a Secret. A good one stays as it is, so that a command may be repeated. A Secret that is not
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
	// Describe says what is in the Secret after that, and returns warnings.
	Describe func(secret *corev1.Secret) (about string, notes []string, err error)
	// Renew is whether an existing Secret that is not as wanted is replaced without that flag; it may be nil.
	Renew func(existing *corev1.Secret) bool
	// Replace is whether to replace an existing Secret, and Flag the flag by which a user asks for it.
	Replace bool
	Flag    string
}

// Put makes a Secret as wanted.
func (c *Client) Put(ctx context.Context, want Change) (Result, error) {
	secret, outcome, err := c.put(ctx, want)
	result := Result{Where: c.Secret(want.Name), Outcome: outcome, DryRun: c.dryRun != nil}
	if err == nil {
		result.About, result.Notes, err = want.Describe(secret)
	}
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", result.Where, err)
	}
	return result, nil
}

func (c *Client) put(ctx context.Context, want Change) (*corev1.Secret, Outcome, error) {
	if c.out != nil {
		secret, err := c.print(want)
		return secret, Printed, err
	}
	existing, err := c.core.Secrets(c.Namespace).Get(ctx, want.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.create(ctx, want)
	}
	if err != nil {
		return nil, "", c.explain(err)
	}
	differences := want.Differs(existing)
	if len(differences) == 0 && !want.Replace {
		return existing, Unchanged, nil
	}
	if want.Refuse != nil {
		if err := want.Refuse(existing); err != nil {
			return nil, "", fmt.Errorf("it exists already, and is not replaced: %w", err)
		}
	}
	if !want.Replace && (want.Renew == nil || !want.Renew(existing)) {
		return nil, "", fmt.Errorf("it exists already, and is not as wanted: %s: replace it with %s", strings.Join(differences, "; "), want.Flag)
	}
	return c.replace(ctx, want, existing)
}

func (c *Client) create(ctx context.Context, want Change) (*corev1.Secret, Outcome, error) {
	secret := c.empty(want)
	if err := want.Write(secret); err != nil {
		return nil, "", err
	}
	secret, err := c.core.Secrets(c.Namespace).Create(ctx, secret, metav1.CreateOptions{DryRun: c.dryRun})
	return secret, Created, c.explain(err)
}

// empty returns a Secret that is to be made as wanted.
func (c *Client) empty(want Change) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: want.Name, Namespace: c.Namespace}, Type: want.Type, Data: map[string][]byte{},
	}
}

func (c *Client) replace(ctx context.Context, want Change, secret *corev1.Secret) (*corev1.Secret, Outcome, error) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	if err := want.Write(secret); err != nil {
		return nil, "", err
	}
	secret, err := c.core.Secrets(c.Namespace).Update(ctx, secret, metav1.UpdateOptions{DryRun: c.dryRun})
	return secret, Replaced, c.explain(err)
}

// Package secret reads TLS certificates and CAs from Kubernetes Secrets. It stands apart from package certs so that programs whose
// material is in files need not carry Kubernetes' client.
package secret

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// The keys of a Secret that hold PEM text: a certificate and its private key, and trusted CAs.
const (
	CertificateKey = corev1.TLSCertKey
	PrivateKeyKey  = corev1.TLSPrivateKeyKey
	CAKey          = corev1.ServiceAccountRootCAKey
)

// Namespace is where the Secrets of a program are.
type Namespace struct {
	Client typed.SecretsGetter
	Name   string
	// KeyFound, if set, is told of each version of a Secret of Roots that holds a private key too, which nobody needs who only trusts it.
	KeyFound func(secret string)
}

var _ certs.Secrets = Namespace{}

// Pair returns an Origin that reads a certificate and its key from tls.crt and tls.key of a Secret. It needs the right to
// list and watch that one Secret only.
func (n Namespace) Pair(name string) certs.Origin { return origin{n, name, PairBlocks, false} }

// Roots returns an Origin that reads trusted CAs from a Secret: from tls.crt when that is a CA's certificate (so a CA's own
// Secret will do), else from ca.crt. It needs the right to list and watch that one Secret only.
func (n Namespace) Roots(name string) certs.Origin { return origin{n, name, RootsBlocks, true} }

// origin is one Kubernetes Secret.
type origin struct {
	namespace Namespace
	name      string
	blocks    func(data map[string][]byte) (certs.Blocks, error)
	roots     bool
}

func (s origin) String() string { return "Secret " + s.namespace.Name + "/" + s.name }

// PairBlocks returns what a Secret's data has for Pair, or why it has nothing.
func PairBlocks(data map[string][]byte) (certs.Blocks, error) {
	for _, key := range []string{CertificateKey, PrivateKeyKey} {
		if len(data[key]) == 0 {
			return certs.Blocks{}, fmt.Errorf("its key %s is missing or empty", key)
		}
	}
	return certs.Blocks{Certificate: data[CertificateKey], Key: data[PrivateKeyKey]}, nil
}

// RootsBlocks returns what a Secret's data has for Roots, or why it has nothing.
func RootsBlocks(data map[string][]byte) (certs.Blocks, error) {
	own, ca := data[CertificateKey], data[CAKey]
	if len(own) == 0 && len(ca) == 0 {
		return certs.Blocks{}, fmt.Errorf("its keys %s and %s are both missing or empty", CertificateKey, CAKey)
	}
	if len(own) == 0 {
		return certs.Blocks{CAs: ca}, nil
	}
	certificates, err := certs.ParseCertificates(own)
	if err != nil {
		return certs.Blocks{}, fmt.Errorf("its key %s: %w", CertificateKey, err)
	}
	switch {
	case certificates[0].IsCA:
		return certs.Blocks{CAs: own}, nil
	case len(ca) > 0:
		return certs.Blocks{CAs: ca}, nil
	default:
		return certs.Blocks{}, fmt.Errorf("its key %s holds the certificate of %q, which is not a CA, and it has no key %s",
			CertificateKey, certificates[0].Subject.String(), CAKey)
	}
}

// Watch follows the Secret by name, so that RBAC may be limited to it. The reflector lists again and backs off as it
// must; what it would log is reported instead, because only the Source knows whether it matters.
func (s origin) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	found := store{origin: s, report: report}
	logger := logr.Discard()
	reflector := cache.NewReflectorWithOptions(found.listWatch(), &corev1.Secret{}, found,
		cache.ReflectorOptions{Name: s.String(), Logger: &logger})
	reflector.RunWithContext(klog.NewContext(ctx, logger))
	return nil
}

// store passes on what a reflector finds.
type store struct {
	origin
	report func(certs.Blocks, error)
}

func (s store) listWatch() cache.ListerWatcher {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
	return kube.ListWatch(
		func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := s.namespace.Client.Secrets(s.namespace.Name).List(ctx, options)
			s.note(ctx, err)
			return list, err
		},
		func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			watching, err := s.namespace.Client.Secrets(s.namespace.Name).Watch(ctx, options)
			s.note(ctx, err)
			return watching, err
		},
	)
}

// note reports a request that was refused or went unanswered. Refusals that the reflector itself mends by asking anew
// (a resource version too old, an API server that cannot stream lists) are not worth a person's time.
func (s store) note(ctx context.Context, err error) {
	switch {
	case err == nil || ctx.Err() != nil:
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		s.report(certs.Blocks{}, fmt.Errorf("%w: %w: allow get, list and watch on this Secret", certs.ErrDenied, err))
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
	default:
		s.report(certs.Blocks{}, fmt.Errorf("%w: %w", certs.ErrUnreachable, err))
	}
}

func (s store) Add(object any) error {
	found, ok := object.(*corev1.Secret)
	if !ok || found.Name != s.name {
		return nil
	}
	if s.roots && len(found.Data[PrivateKeyKey]) > 0 && s.namespace.KeyFound != nil {
		s.namespace.KeyFound(s.String())
	}
	s.report(s.blocks(found.Data))
	return nil
}

func (s store) Update(object any) error { return s.Add(object) }

func (s store) Delete(any) error {
	s.report(certs.Blocks{}, errors.New("not found"))
	return nil
}

func (s store) Replace(objects []any, _ string) error {
	if len(objects) == 0 {
		return s.Delete(nil)
	}
	return s.Add(objects[0])
}

func (s store) Resync() error { return nil }

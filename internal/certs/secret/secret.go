package certs

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
)

// The keys of a Secret that hold PEM text.
const (
	certificateKey = corev1.TLSCertKey
	privateKeyKey  = corev1.TLSPrivateKeyKey
	authorityKey   = corev1.ServiceAccountRootCAKey
)

// secret is an Origin that is one Kubernetes Secret.
type secret struct {
	client    typed.SecretsGetter
	namespace string
	name      string
	blocks    func(data map[string][]byte) (Blocks, error)
}

// PairSecret returns an Origin that reads a certificate and its key from tls.crt and tls.key of a Secret. It needs leave
// to list and watch that one Secret only.
func PairSecret(client typed.SecretsGetter, namespace, name string) Origin {
	return secret{client: client, namespace: namespace, name: name, blocks: pairBlocks}
}

// RootsSecret returns an Origin that reads trusted authorities from a Secret: from tls.crt when that is an authority's
// certificate (so an authority's own Secret will do), else from ca.crt. It needs leave to list and watch that one Secret
// only.
func RootsSecret(client typed.SecretsGetter, namespace, name string) Origin {
	return secret{client: client, namespace: namespace, name: name, blocks: rootsBlocks}
}

func (s secret) String() string { return "Secret " + s.namespace + "/" + s.name }

func pairBlocks(data map[string][]byte) (Blocks, error) {
	for _, key := range []string{certificateKey, privateKeyKey} {
		if len(data[key]) == 0 {
			return Blocks{}, fmt.Errorf("its key %s is missing or empty", key)
		}
	}
	return Blocks{Certificate: data[certificateKey], Key: data[privateKeyKey]}, nil
}

func rootsBlocks(data map[string][]byte) (Blocks, error) {
	own, authority := data[certificateKey], data[authorityKey]
	if len(own) == 0 && len(authority) == 0 {
		return Blocks{}, fmt.Errorf("its keys %s and %s are both missing or empty", certificateKey, authorityKey)
	}
	if len(own) == 0 {
		return Blocks{Authorities: authority}, nil
	}
	certificates, err := parseCertificates(own)
	if err != nil {
		return Blocks{}, fmt.Errorf("its key %s: %w", certificateKey, err)
	}
	switch {
	case certificates[0].IsCA:
		return Blocks{Authorities: own}, nil
	case len(authority) > 0:
		return Blocks{Authorities: authority}, nil
	default:
		return Blocks{}, fmt.Errorf("its key %s holds the certificate of %s, which is not an authority, and it has no key %s",
			certificateKey, quote(certificates[0].Subject.String()), authorityKey)
	}
}

// Watch follows the Secret by name, so that RBAC may be limited to it. The reflector lists again and backs off as it
// must; what it would log is reported instead, because only the Source knows whether it matters.
func (s secret) Watch(ctx context.Context, report func(Blocks, error)) error {
	store := secretStore{secret: s, report: report}
	logger := logr.Discard()
	reflector := cache.NewReflectorWithOptions(store.listWatch(), &corev1.Secret{}, store,
		cache.ReflectorOptions{Name: s.String(), Logger: &logger})
	reflector.RunWithContext(klog.NewContext(ctx, logger))
	return nil
}

// secretStore passes on what a reflector finds.
type secretStore struct {
	secret
	report func(Blocks, error)
}

func (s secretStore) listWatch() cache.ListerWatcher {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			list, err := s.client.Secrets(s.namespace).List(ctx, options)
			s.note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			watching, err := s.client.Secrets(s.namespace).Watch(ctx, options)
			s.note(ctx, err)
			return watching, err
		},
	}
}

// note reports a request that was refused or went unanswered. Refusals that the reflector itself mends by asking anew
// (a resource version too old, an API server that cannot stream lists) are not worth a person's time.
func (s secretStore) note(ctx context.Context, err error) {
	switch {
	case err == nil || ctx.Err() != nil:
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		s.report(Blocks{}, fmt.Errorf("%w: %w: allow get, list and watch on this Secret", errDenied, err))
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
	default:
		s.report(Blocks{}, fmt.Errorf("%w: %w", errUnreachable, err))
	}
}

func (s secretStore) Add(object any) error {
	found, ok := object.(*corev1.Secret)
	if !ok || found.Name != s.name {
		return nil
	}
	s.report(s.blocks(found.Data))
	return nil
}

func (s secretStore) Update(object any) error { return s.Add(object) }

func (s secretStore) Delete(any) error {
	s.report(Blocks{}, errors.New("not found"))
	return nil
}

func (s secretStore) Replace(objects []any, _ string) error {
	if len(objects) == 0 {
		return s.Delete(nil)
	}
	return s.Add(objects[0])
}

func (s secretStore) Resync() error { return nil }

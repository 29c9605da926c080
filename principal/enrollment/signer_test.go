package enrollment_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment"
)

func requestOf(t *testing.T, name string) pki.Request {
	t.Helper()
	request, err := pki.ParseRequest(csrOf(t, name))
	require.NoError(t, err)
	return request
}

// The CA's Secret is read each time: what is wrong with it is said with what to do.
func TestCASecret(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test", Validity: pki.Validity{NotAfter: time.Now().Add(2 * time.Hour)}})
	require.NoError(t, err)
	other, err := pki.NewCA(pki.CAOptions{CommonName: "other"})
	require.NoError(t, err)
	leaf, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin"})
	require.NoError(t, err)
	for want, data := range map[string]map[string][]byte{
		"create it with: argocd-agentctl pki init": nil,
		"it has no private key":                    {"tls.crt": ca.PEM().Certificate},
		"private key does not match":               {"tls.crt": ca.PEM().Certificate, "tls.key": other.PEM().Key},
		"is not one of a CA":                       {"tls.crt": leaf.Certificate, "tls.key": leaf.Key},
	} {
		hub := fake.NewClientset()
		if data != nil {
			require.NoError(t, hub.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ca", Name: "argocd-agent-ca"}, Data: data}))
		}
		signer := enrollment.CASecret{Client: hub.CoreV1(), Namespace: "ca", Name: "argocd-agent-ca", Lifetime: time.Hour}
		_, err := signer.Sign(t.Context(), "berlin", requestOf(t, "berlin"))
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "Secret ca/argocd-agent-ca")
	}

	for lifetime, c := range map[time.Duration]struct{ before, after time.Duration }{
		time.Hour:        {5 * time.Minute, time.Hour},
		30 * time.Second: {3 * time.Second, 30 * time.Second},
		24 * time.Hour:   {5 * time.Minute, 2 * time.Hour}, // the CA ends then
	} {
		hub := fake.NewClientset(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ca", Name: "argocd-agent-ca"},
			Data:       map[string][]byte{"tls.crt": ca.PEM().Certificate, "tls.key": ca.PEM().Key},
		})
		signer := enrollment.CASecret{Client: hub.CoreV1(), Namespace: "ca", Name: "argocd-agent-ca", Lifetime: lifetime}
		text, err := signer.Sign(t.Context(), "berlin", requestOf(t, "berlin"))
		require.NoError(t, err)
		issued, err := certs.ParseCertificates(text)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(c.after), issued[0].NotAfter, 30*time.Second, lifetime)
		require.WithinDuration(t, time.Now().Add(-c.before), issued[0].NotBefore, 30*time.Second, lifetime)
	}
}

func TestIssuers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]enrollment.Issuer{
		"agents":               {Kind: "Issuer", Group: "cert-manager.io", Name: "agents"},
		"ClusterIssuer/agents": {Kind: "ClusterIssuer", Group: "cert-manager.io", Name: "agents"},
		"AWSPCAIssuer.awspca.cert-manager.io/agents": {Kind: "AWSPCAIssuer", Group: "awspca.cert-manager.io", Name: "agents"},
	} {
		issuer, err := enrollment.ParseIssuer(text)
		require.NoError(t, err)
		require.Equal(t, want, issuer)
	}
}

// answering is a CertManager of whose requests becomes what events say. It counts those that are deleted.
func answering(t *testing.T, log *bytes.Buffer, deleted *int, events ...watch.Event) enrollment.CertManager {
	t.Helper()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("create", "certificaterequests", func(a clienttesting.Action) (bool, runtime.Object, error) {
		made := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		made.SetName(made.GetGenerateName() + "1")
		made.SetResourceVersion("1")
		return true, made, nil
	})
	client.PrependWatchReactor("certificaterequests", func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFakeWithChanSize(len(events), false)
		for _, e := range events {
			w.Action(e.Type, e.Object)
		}
		return true, w, nil
	})
	client.PrependReactor("delete", "certificaterequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		*deleted++
		return true, nil, errors.New("not now")
	})
	return enrollment.CertManager{
		Client: client, Namespace: "ca", Issuer: enrollment.Issuer{Kind: "Issuer", Group: "cert-manager.io", Name: "agents"}, Lifetime: time.Hour,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	}
}

// has is the event that a request has a condition.
func has(kind, status, reason string) watch.Event {
	return watch.Event{Type: watch.Modified, Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest",
		"metadata": map[string]any{"name": "argocd-agent-berlin-1", "namespace": "ca", "resourceVersion": "2"},
		"status": map[string]any{
			"certificate": "UEVN",
			"conditions": []any{
				map[string]any{"type": "Approved", "status": "True", "reason": "cert-manager.io", "message": "ok"},
				map[string]any{"type": kind, "status": status, "reason": reason, "message": "so it is"},
			},
		},
	}}}
}

// How cert-manager answers. What the real one does is for the end-to-end tests; this is what it does seldom.
func TestAnswersOfCertManager(t *testing.T) {
	gone := has("Ready", "False", "Pending")
	gone.Type = watch.Deleted
	for name, c := range map[string]struct {
		events []watch.Event
		want   string
	}{
		"ready":         {[]watch.Event{has("Ready", "False", "Pending"), has("Ready", "True", "Issued")}, ""},
		"failed":        {[]watch.Event{has("Ready", "False", "Failed")}, "CertificateRequest ca/argocd-agent-berlin-1: Failed: so it is"},
		"invalid":       {[]watch.Event{has("InvalidRequest", "True", "BadUsages")}, "CertificateRequest ca/argocd-agent-berlin-1: BadUsages: so it is"},
		"denied":        {[]watch.Event{has("Denied", "True", "Policy")}, "was denied on the hub: Policy: so it is"},
		"deleted":       {[]watch.Event{gone}, "somebody deleted it"},
		"pending":       {[]watch.Event{has("Ready", "False", "Pending")}, "see whether cert-manager runs, and Issuer agents: Pending: so it is"},
		"not looked at": {nil, "see whether cert-manager runs, and Issuer agents: cert-manager has said nothing of it"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				deleted := 0
				signer := answering(t, &log, &deleted, c.events...)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				text, err := signer.Sign(ctx, "berlin", requestOf(t, "berlin"))
				if c.want == "" {
					require.NoError(t, err)
					require.Equal(t, "PEM", string(text))
				} else {
					require.ErrorContains(t, err, c.want)
				}
				require.Equal(t, 1, deleted, "also of what has failed, and of what took too long")
				require.Contains(t, log.String(), "Failed to delete CertificateRequest")
			})
		})
	}
}

// A denial is told to the caller, and its reason is not.
func TestDenialOfCertManager(t *testing.T) {
	t.Parallel()
	deleted := 0
	o := newOffice(t, answering(t, new(bytes.Buffer), &deleted, has("Denied", "True", "Policy")))
	_, err := o.renew("berlin", csrOf(t, "berlin"))
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	require.Equal(t, "no certificate for agent berlin: its request was denied on the hub", status.Convert(err).Message())
	require.Contains(t, o.log.String(), "Policy: so it is")
	o.counts("certificate", "refused", 1)
}

// Where there is no cert-manager, or no right to use it, the log says what is missing.
func TestNoCertManager(t *testing.T) {
	t.Parallel()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("create", "certificaterequests", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "x")
	})
	_, err := enrollment.CertManager{Client: client, Namespace: "ca"}.Sign(t.Context(), "berlin", requestOf(t, "berlin"))
	require.ErrorContains(t, err, "install cert-manager, and allow the principal to create, list, watch and delete them there")
}

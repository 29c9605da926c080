package enrollment_test

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment"
)

// certificateRequests is their resource.
func certificateRequests() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificaterequests"}
}

// pile is a namespace with requests that somebody left: client-go's fake.
type pile struct {
	t      *testing.T
	client *dynamicfake.FakeDynamicClient
	signer enrollment.CertManager
	log    *logtest.Log
}

func newPile(t *testing.T) *pile {
	t.Helper()
	p := &pile{t: t, log: new(logtest.Log), client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{certificateRequests(): "CertificateRequestList"})}
	p.signer = enrollment.CertManager{Client: p.client, Namespace: "ca", Logger: slog.New(slog.NewTextHandler(p.log, nil))}
	return p
}

// has puts a request there that was made so long ago.
func (p *pile) has(name string, age time.Duration, labels map[string]any) {
	p.t.Helper()
	_, err := p.client.Resource(certificateRequests()).Namespace("ca").Create(p.t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "CertificateRequest",
		"metadata": map[string]any{"name": name, "labels": labels, "creationTimestamp": time.Now().Add(-age).UTC().Format(time.RFC3339)},
	}}, metav1.CreateOptions{})
	require.NoError(p.t, err)
}

// names are those of the requests that are there, sorted.
func (p *pile) names() []string {
	p.t.Helper()
	list, err := p.client.Resource(certificateRequests()).Namespace("ca").List(p.t.Context(), metav1.ListOptions{})
	require.NoError(p.t, err)
	var names []string
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	slices.Sort(names)
	return names
}

// What a principal left that was killed the next one deletes, once no principal can wait for it any more. What others made stays.
func TestRequestsOfAKilledPrincipalAreDeleted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPile(t)
		ours := map[string]any{"app.kubernetes.io/managed-by": "argocd-agent-principal"}
		p.has("old", time.Hour, ours)
		p.has("waited-for", 10*time.Second, ours)
		p.has("argocd-agent-berlin-person", time.Hour, nil)
		p.has("other", time.Hour, map[string]any{"app.kubernetes.io/managed-by": "Helm"})
		began, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			p.signer.CleanUp(t.Context())
		}()
		<-time.After(time.Minute)
		require.Equal(t, []string{"argocd-agent-berlin-person", "other", "waited-for"}, p.names())
		<-done
		require.Equal(t, []string{"argocd-agent-berlin-person", "other"}, p.names())
		require.Equal(t, 5*time.Minute+15*time.Second, time.Since(began))
		require.Contains(t, p.log.String(), "Deleted a CertificateRequest that a principal left")
	})
}

// A request has the label by which it is found again.
func TestRequestsHaveTheLabelOfWhatIsLeft(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPile(t)
		p.client.PrependWatchReactor("certificaterequests", clienttesting.DefaultWatchReactor(nil, errors.New("the principal is killed")))
		p.client.PrependReactor("delete", "certificaterequests", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("the principal is killed")
		})
		_, err := p.signer.Sign(t.Context(), "berlin", requestOf(t, "berlin"))
		require.Error(t, err)
		require.Len(t, p.names(), 1)
		p.client.ReactionChain = p.client.ReactionChain[1:]
		p.signer.CleanUp(t.Context())
		require.Empty(t, p.names())
	})
}

// Without the right to list them the log says what is missing, once; an API server that is away is asked again.
func TestRequestsThatCannotBeListed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err  error
			asks int
			says string
		}{
			{apierrors.NewForbidden(certificateRequests().GroupResource(), "", errors.New("no")), 1, "allow the principal to list and delete them"},
			{apierrors.NewNotFound(certificateRequests().GroupResource(), ""), 1, ""},
			{errors.New("no API server"), 3, ""},
		} {
			p, asks := newPile(t), 0
			p.client.PrependReactor("list", "certificaterequests", func(clienttesting.Action) (bool, runtime.Object, error) {
				asks++
				return asks < 3, nil, c.err
			})
			p.signer.CleanUp(t.Context())
			require.Equal(t, c.asks, asks)
			require.Contains(t, p.log.String(), c.says)
			require.Equal(t, c.says == "", p.log.String() == "")
		}
	})
}

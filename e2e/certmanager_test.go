package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/certmanager"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// newCertManager runs cert-manager in a namespace of the hub, which it returns, with the Issuer agents: an intermediate CA by that of the lab.
func newCertManager(t *testing.T, manual bool) string {
	t.Helper()
	place := unique("cert-manager")
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace(place)))
	certificate, key := intermediateCA(t)
	_, err := shared.Hub.Kubernetes.CoreV1().Secrets(place).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "agents-ca"},
		Data:       map[string][]byte{"tls.crt": bytes.Join([][]byte{certificate, shared.CA.PEM().Certificate}, nil), "tls.key": key},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	program, err := certmanager.Start(ctx, certmanager.Options{
		Host: shared.Host, Tools: shared.Tools, Cluster: shared.Hub.Cluster, Namespace: place, Manual: manual,
	})
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, program.Stop) })
	issuer := certmanager.Issuers(place, "agents")
	_, err = shared.Hub.Of(issuer).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": map[string]any{"name": "agents"},
		"spec": map[string]any{"ca": map[string]any{"secretName": "agents-ca"}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	expect(t, shared.Hub, issuer, func(o *unstructured.Unstructured) bool { return o != nil && cluster.Condition(o, "Ready") == "True" })
	return place
}

// intermediateCA returns a CA that the lab's has signed, and its key, as PEM.
func intermediateCA(t *testing.T) (certificate, key []byte) {
	t.Helper()
	root, err := shared.CA.PEM().TLS()
	require.NoError(t, err)
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "cert-manager of the lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, root.Leaf, own.Public(), root.PrivateKey)
	require.NoError(t, err)
	ownDER, err := x509.MarshalPKCS8PrivateKey(own)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: ownDER})
}

// newIssuingByCertManager starts a principal that has certificates signed by an issuer in a namespace.
func newIssuingByCertManager(t *testing.T, place, issuer string) issuing {
	t.Helper()
	return newIssuingBy(t, "principal-cert-manager-rbac.yaml", place,
		"--signer=cert-manager", "--signer-issuer="+issuer, "--certificate-lifetime=30s")
}

// Where a hub has cert-manager, the principal holds no CA: it asks for each certificate, by a request that is gone when it is answered.
func TestAgentEnrollsAndRenewsByCertManager(t *testing.T) {
	t.Parallel()
	place := newCertManager(t, false)
	principal := newIssuingByCertManager(t, place, "agents")
	lone := unique("lone")
	issued, err := principal.enrolls(t, enrollmentToken(t, lone), newCSR(t, lone))
	require.NoError(t, err)
	require.Equal(t, "CN="+lone, issued.Subject.String())
	require.Equal(t, "CN=cert-manager of the lab", issued.Issuer.String())
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, issued.ExtKeyUsage)
	require.False(t, issued.IsCA)
	require.WithinDuration(t, time.Now().Add(30*time.Second), issued.NotAfter, 20*time.Second)
	left, err := shared.Hub.List(t.Context(), certmanager.Requests(place, ""))
	require.NoError(t, err)
	require.Empty(t, left, "requests are deleted")
	require.NotContains(t, logSince(t, principal.LogPath(), 0), "of principals that were killed are not deleted", "it may list them")

	s := principal.joins(t, unique("certified"))
	s.newTwin("first").create(t).arrives(t)
	first := secretOf(t, s.spoke, s.name, "argocd-agent-client-tls")
	pair, err := tls.X509KeyPair(first.Data["tls.crt"], first.Data["tls.key"])
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(pair.Certificate), 2, "the principal trusts the lab's CA alone: the intermediate one comes along")
	s.renews(t, first)
	s.newTwin("second").create(t).arrives(t)
}

// What is denied nobody gets. The caller learns that, and the principal's log says why.
func TestCertManagerDenies(t *testing.T) {
	t.Parallel()
	place := newCertManager(t, true)
	principal := newIssuingByCertManager(t, place, "agents")
	denial := make(chan error, 1)
	go func() { denial <- denies(t.Context(), place) }()
	name := unique("denied")
	_, err := principal.enrolls(t, enrollmentToken(t, name), newCSR(t, name))
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "no certificate for agent "+name+": its request was denied on the hub")
	require.NotContains(t, err.Error(), "the hub says no")
	says(t, principal, "TestPolicy: the hub says no")
	require.NoError(t, <-denial)
	left, err := shared.Hub.List(t.Context(), certmanager.Requests(place, ""))
	require.NoError(t, err)
	require.Empty(t, left)
}

// denies denies the next request in a namespace, as who approves requests in cert-manager's place does.
func denies(ctx context.Context, place string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found, err := shared.Hub.WaitAll(ctx, certmanager.Requests(place, ""), func(o cluster.Objects) bool { return len(o) > 0 })
	for _, request := range found {
		request = request.DeepCopy()
		condition := map[string]any{"type": "Denied", "status": "True", "reason": "TestPolicy", "message": "the hub says no"}
		if err := unstructured.SetNestedSlice(request.Object, []any{condition}, "status", "conditions"); err != nil {
			return err
		}
		_, err = shared.Hub.Of(certmanager.Requests(place, "")).UpdateStatus(ctx, request, metav1.UpdateOptions{})
	}
	return err
}

// An issuer that there is not is nothing that an agent could do about: the principal's log says what is wrong.
func TestCertManagerWithoutItsIssuer(t *testing.T) {
	t.Parallel()
	principal := newIssuingByCertManager(t, newCertManager(t, false), "nowhere")
	name := unique("astray")
	_, err := principal.enrolls(t, enrollmentToken(t, name), newCSR(t, name))
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.NotContains(t, err.Error(), "nowhere")
	says(t, principal, "it was not ready in time: see whether cert-manager runs, and Issuer nowhere: Pending")
}

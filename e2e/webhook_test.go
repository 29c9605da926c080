package e2e_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	registrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// webhook is an admission webhook of a test's own, that an API server asks about the Applications that are labelled "hooked"
// in one namespace.
type webhook struct {
	hanging chan struct{} // of capacity one: is given something when somebody waits for an answer

	mu     sync.Mutex    // guards all below
	reason string        // why it denies everything; empty if it does not
	code   int32         // by which code; zero leaves that to the API server
	open   chan struct{} // is closed while it answers
}

// newWebhook serves a webhook for the namespace of an Application. It denies everything for a reason.
func newWebhook(t *testing.T, s side, reason string) *webhook {
	t.Helper()
	pair, err := shared.CA.IssueServer(pki.ServerOptions{Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	require.NoError(t, err)
	hook := &webhook{hanging: make(chan struct{}, 1)}
	hook.hang()
	hook.answer(reason)
	server := httptest.NewUnstartedServer(hook)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)

	fail, none, seconds := registrationv1.Fail, registrationv1.SideEffectClassNone, int32(3)
	configurations := s.cluster.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	created, err := configurations.Create(t.Context(), &registrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.selection.Namespace + "-" + s.selection.Name},
		Webhooks: []registrationv1.ValidatingWebhook{{
			Name:         "cake.example.com",
			ClientConfig: registrationv1.WebhookClientConfig{URL: &server.URL, CABundle: shared.CA.PEM().Certificate},
			Rules: []registrationv1.RuleWithOperations{{
				Operations: []registrationv1.OperationType{registrationv1.Create, registrationv1.Update},
				Rule: registrationv1.Rule{
					APIGroups: []string{"argoproj.io"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"applications"},
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				"kubernetes.io/metadata.name": s.selection.Namespace,
			}},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"hooked": "yes"}},
			FailurePolicy:  &fail, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, configurations.Delete(context.WithoutCancel(t.Context()), created.Name, metav1.DeleteOptions{}))
	})
	return hook
}

// answer has everything denied from now on, for a reason; without one, all is allowed.
func (h *webhook) answer(reason string) { h.answerBy(0, reason) }

// answerBy is answer with an HTTP code of the webhook's choice.
func (h *webhook) answerBy(code int32, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.code, h.reason = code, reason
	select {
	case <-h.open:
	default:
		close(h.open)
	}
}

// hang has nothing answered any more.
func (h *webhook) hang() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = make(chan struct{})
}

// wait returns by which code and why everything is denied, as soon as it does not hang; false if the one who asks gives up
// before.
func (h *webhook) wait(ctx context.Context) (code int32, reason string, ok bool) {
	h.mu.Lock()
	open := h.open
	h.mu.Unlock()
	select {
	case <-open:
	default:
		select {
		case h.hanging <- struct{}{}:
		default:
		}
	}
	select {
	case <-open:
	case <-ctx.Done():
		return 0, "", false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.code, h.reason, true
}

// ServeHTTP answers one question.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	code, reason, ok := h.wait(r.Context())
	if !ok {
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: reason == ""}
	if reason != "" {
		review.Response.Result = &metav1.Status{Code: code, Message: reason}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // to an API server that has hung up, if it does not work
}

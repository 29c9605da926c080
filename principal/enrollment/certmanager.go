package enrollment

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// certManagerGroup is the API group of cert-manager, and of its own issuers.
const certManagerGroup = "cert-manager.io"

// Issuer is an issuer of cert-manager, its own or an external one.
type Issuer struct{ Kind, Group, Name string }

// ParseIssuer reads an issuer: NAME, KIND/NAME, or KIND.GROUP/NAME for an external one. The kind is Issuer, and the group cert-manager.io, if
// they are not there.
func ParseIssuer(text string) (Issuer, error) {
	kind, name, found := strings.Cut(text, "/")
	if !found {
		kind, name = "Issuer", text
	}
	parsed := schema.ParseGroupKind(kind)
	if parsed.Group == "" {
		parsed.Group = certManagerGroup
	}
	if parsed.Kind == "" || len(validation.IsDNS1123Subdomain(name)) > 0 || len(validation.IsDNS1123Subdomain(parsed.Group)) > 0 {
		return Issuer{}, errors.New("want an issuer of cert-manager, such as agents, ClusterIssuer/agents or AWSPCAIssuer.awspca.cert-manager.io/agents")
	}
	return Issuer{parsed.Kind, parsed.Group, name}, nil
}

// CertManager is a Signer by cert-manager: it makes a CertificateRequest, and deletes it when there is an answer. cert-manager signs what the
// agent's own request says, which names the agent and nothing else.
type CertManager struct {
	Client dynamic.Interface
	// Namespace is where requests are made. An Issuer has to be there too.
	Namespace string
	Issuer    Issuer
	// Lifetime is how long certificates are to be valid. The issuer may decide otherwise.
	Lifetime time.Duration
	Logger   *slog.Logger
}

// deletion is how long the deletion of a request may take.
const deletion = 5 * time.Second

// Sign implements Signer.
func (s CertManager) Sign(ctx context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
	made, err := s.requests().Create(ctx, s.request(agent, request), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a CertificateRequest in namespace %s: %w: install cert-manager, and allow the principal to create, list, "+
			"watch and delete them there: see --signer-ca-namespace", s.Namespace, err)
	}
	defer s.remove(ctx, made.GetName())
	return s.wait(ctx, agent, made)
}

// requests are the CertificateRequests in the namespace.
func (s CertManager) requests() dynamic.ResourceInterface {
	return s.Client.Resource(schema.GroupVersionResource{Group: certManagerGroup, Version: "v1", Resource: "certificaterequests"}).Namespace(s.Namespace)
}

// request is the CertificateRequest of an agent.
func (s CertManager) request(agent identity.Agent, request pki.Request) *unstructured.Unstructured {
	text := request.PEM()
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": certManagerGroup + "/v1", "kind": "CertificateRequest",
		"metadata": map[string]any{
			"generateName": "argocd-agent-" + string(agent) + "-",
			"labels":       map[string]any{labelManagedBy: managedBy},
		},
		"spec": map[string]any{
			"request":   base64.StdEncoding.EncodeToString(text),
			"duration":  s.Lifetime.String(),
			"usages":    []any{"digital signature", "client auth"},
			"isCA":      false,
			"issuerRef": map[string]any{"kind": s.Issuer.Kind, "group": s.Issuer.Group, "name": s.Issuer.Name},
		},
	}}
}

// remove deletes a request, also when the context has ended. What stays all the same CleanUp deletes.
func (s CertManager) remove(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deletion)
	defer cancel()
	if err := s.requests().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		s.Logger.Warn("Failed to delete CertificateRequest", "namespace", s.Namespace, "name", name, "error", err)
	}
}

// wait watches a request until there is an answer, and returns the certificate.
func (s CertManager) wait(ctx context.Context, agent identity.Agent, made *unstructured.Unstructured) ([]byte, error) {
	var last progress
	var certificate []byte
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, made.GetName()).String()
	watcher := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.FieldSelector = one
		return s.requests().Watch(ctx, o)
	}}
	_, err := watchtools.Until(ctx, made.GetResourceVersion(), watcher, func(e watch.Event) (done bool, err error) {
		object, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Deleted {
			return false, errors.New("somebody deleted it")
		}
		last = progress{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &last); err != nil {
			return false, err
		}
		certificate, err = last.outcome(agent)
		return certificate != nil, err
	})
	if err == nil {
		return certificate, nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: it was not ready in time: see whether cert-manager runs, and %s %s: %s",
			ctx.Err(), s.Issuer.Kind, s.Issuer.Name, last.condition("Ready").text())
	}
	return nil, fmt.Errorf("CertificateRequest %s/%s: %w", s.Namespace, made.GetName(), err)
}

// progress is what is read of a CertificateRequest. cert-manager's own module would bring its dependencies into the principal.
type progress struct {
	Status struct {
		Conditions  []condition `json:"conditions"`
		Certificate []byte      `json:"certificate"`
	} `json:"status"`
}

// condition is one of an object.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (c condition) text() string {
	if c.Reason == "" {
		return "cert-manager has said nothing of it"
	}
	return c.Reason + ": " + c.Message
}

// condition returns the condition of a type, which is empty if there is none.
func (p progress) condition(kind string) condition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return condition{}
}

// outcome returns the certificate, nil while there is no answer, or why there will be none. Denied and Failed are final: cert-manager looks
// at such a request no more.
func (p progress) outcome(agent identity.Agent) ([]byte, error) {
	ready := p.condition("Ready")
	denied := p.condition("Denied")
	switch {
	case denied.Status == "True":
		return nil, &refusal{
			codes.PermissionDenied, fmt.Sprintf("no certificate for agent %s: its request was denied on the hub", agent), errors.New(denied.text()),
		}
	case p.condition("InvalidRequest").Status == "True":
		return nil, errors.New(p.condition("InvalidRequest").text())
	case ready.Status == "False" && ready.Reason == "Failed":
		return nil, errors.New(ready.text())
	case ready.Status == "True":
		return p.Status.Certificate, nil
	}
	return nil, nil
}

var _ Signer = CertManager{}

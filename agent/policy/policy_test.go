package policy_test

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/ownership"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

// applications is a policy.Applications with fixed objects, by resource or kind, as group/resource/namespace/name, and by UID.
type applications map[string]ownership.Owner

func (a applications) Lookup(_ context.Context, o ownership.Object) (ownership.Owner, error) {
	if a == nil {
		return ownership.Owner{}, errors.New("redis is away")
	}
	if o.Name == "" {
		return a[o.UID], nil
	}
	group := o.Group
	if o.AnyGroup {
		group = "any"
	}
	key := strings.Join([]string{group, o.Resource + o.Kind, o.Namespace, o.Name}, "/")
	if o.UID != "" && a[o.UID].Application == "" {
		return ownership.Owner{}, nil
	}
	return a[key], nil
}

// known is what there is in most tests.
func known() applications {
	root, child := ownership.Owner{Application: "guestbook", Root: true}, ownership.Owner{Application: "guestbook"}
	return applications{
		"apps/deployments/a/web": root, "/pods/a/web-1": child, "web-1-uid": child, "any/Pod/a/web-1": child, "/Pod/a/web-1": child,
		"/services/a/web": root, "/nodes//n1": root, "/namespaces//a": root, "/namespaces//b": child,
		"rbac.authorization.k8s.io/clusterroles//web": root, "rbac.authorization.k8s.io/clusterroles//made": child,
		"batch/CronJob/a/nightly": root, "nightly-uid": root, "batch/cronjobs/a/nightly": root, "cluster-uid": root,
		"argoproj.io/applications/argocd/child": root, "argoproj.io/appprojects/argocd/p": root, "argoproj.io/applicationsets/team/s": root,
		"argoproj.io/rollouts/a/r": root, "/secrets/argocd/s": root, "/configmaps/argocd/argocd-agent-policy": root, "/secrets/a/s": root,
		"/namespaces//argocd": root, "/serviceaccounts/a/web": root, "rbac.authorization.k8s.io/roles/a/web": root,
		"rbac.authorization.k8s.io/rolebindings/a/web": root, "rbac.authorization.k8s.io/clusterrolebindings//web": root,
		"admissionregistration.k8s.io/mutatingwebhookconfigurations//web":  root,
		"admissionregistration.k8s.io/validatingadmissionpolicies//web":    root,
		"apiextensions.k8s.io/customresourcedefinitions//webs.example.com": root, "apiregistration.k8s.io/apiservices//v1.example.com": root,
		"certificates.k8s.io/certificatesigningrequests//web": root, "security.openshift.io/securitycontextconstraints//web": root,
		"/pods/argocd/server": child, "apps/deployments/argocd/argocd-server": root, "argoproj.io/Application/argocd/child": root, "child-uid": root,
	}
}

// ask asks a policy with the default rule only.
func ask(t *testing.T, p *policy.Policy, method, target string, body string) (policy.Decision, error) {
	t.Helper()
	r := arriving(method, target)
	require.NotNil(t, r)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	q, err := policy.Parse(r)
	require.NoError(t, err, target)
	q.Body = func() ([]byte, error) { return []byte(body), nil }
	return p.Decide(t.Context(), q)
}

func TestDefaultRule(t *testing.T) {
	p := follows(t, newAPIServer(t, nil), known()).policy
	const yes, no = true, false
	for _, c := range []struct {
		method, target string
		allowed        bool
	}{
		{"GET", "/api", yes},
		{"GET", "/apis", yes},
		{"GET", "/apis/apps/v1", yes},
		{"GET", "/api/v1", yes},
		{"GET", "/version", yes},
		{"GET", "/openapi/v3/apis/apps/v1?hash=x", yes},
		{"GET", "/healthz", yes},
		{"HEAD", "/readyz", yes},
		{"GET", "/livez/ping", yes},
		{"POST", "/version", no},
		{"GET", "/version2", no},
		{"GET", "/apisx", no},
		{"GET", "/metrics", no},
		{"GET", "/logs", no},
		{"GET", "/debug/pprof", no},
		{"GET", "/", no},

		{"GET", "/apis/apps/v1/namespaces/a/deployments/web", yes},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/web", yes},
		{"PUT", "/apis/apps/v1/namespaces/a/deployments/web", yes},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments/web", yes},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/web/scale", yes},
		{"PUT", "/apis/apps/v1/namespaces/a/deployments/web/status", yes},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments/web/status", no},
		{"GET", "/apis/apps/v1/namespaces/a/deployments/web/log", no},
		{"GET", "/apis/apps/v1/namespaces/b/deployments/web", no},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/other", no},
		{"GET", "/apis/extensions/v1beta1/namespaces/a/deployments/web", no},
		{"GET", "/apis/argoproj.io/v1alpha1/namespaces/a/rollouts/r", yes},

		{"GET", "/api/v1/namespaces/a/pods/web-1/log?follow=true", yes},
		{"GET", "/api/v1/namespaces/a/pods/web-1/exec?command=sh", yes},
		{"POST", "/api/v1/namespaces/a/pods/web-1/exec?command=sh", yes},
		{"POST", "/api/v1/namespaces/a/pods/web-1/attach", yes},
		{"POST", "/api/v1/namespaces/a/pods/web-2/exec?command=sh", no},
		{"GET", "/api/v1/namespaces/argocd/pods/server/log", yes},
		{"GET", "/api/v1/namespaces/argocd/pods/server/exec?command=sh", no},
		{"POST", "/api/v1/namespaces/argocd/pods/server/attach", no},
		{"GET", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server", yes},
		{"PATCH", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server/scale", no},
		{"GET", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server/scale", yes},
		{"DELETE", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server", no},
		{"DELETE", "/api/v1/namespaces/argocd/pods/server", no},
		{"DELETE", "/api/v1/namespaces/argocd", no},
		{"PATCH", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server", no},
		{"PUT", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server", no},
		{"PATCH", "/api/v1/namespaces/argocd/pods/server", no},
		{"GET", "/api/v1/namespaces/a/pods/web-2/log", no},
		{"POST", "/api/v1/namespaces/a/pods/web-1/portforward?ports=80", no},
		{"GET", "/api/v1/namespaces/a/pods/web-1/portforward", no},
		{"GET", "/api/v1/namespaces/a/pods/web-1/proxy/x", no},
		{"POST", "/api/v1/namespaces/a/pods/web-1/eviction", no},
		{"POST", "/api/v1/namespaces/a/pods/web-1/binding", no},
		{"PATCH", "/api/v1/namespaces/a/pods/web-1/ephemeralcontainers", no},
		{"GET", "/api/v1/namespaces/a/services/web/proxy", no},
		{"POST", "/api/v1/namespaces/a/serviceaccounts/default/token", no},
		{"POST", "/api/v1/namespaces/a/bindings", no},

		{"GET", "/api/v1/namespaces/a/pods", no},
		{"GET", "/api/v1/pods?watch=true", no},
		{"DELETE", "/api/v1/namespaces/a/pods", no},
		{"DELETE", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=web-1", no},
		{"GET", "/api/v1/namespaces/a/pods?watch=true&fieldSelector=metadata.name%3Dweb-1", yes},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb-1", yes},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dweb-2", no},
		{"GET", "/api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dweb-1", no},
		{"GET", "/api/v1/pods?fieldSelector=metadata.name%3Dweb-1", no},

		{"GET", "/api/v1/namespaces/a/events", no},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.name%3Dweb-1,involvedObject.namespace%3Da,involvedObject.uid%3Dweb-1-uid", yes},
		{"GET", "/api/v1/namespaces/a/events?watch=true&fieldSelector=involvedObject.uid%3Dweb-1-uid", yes},
		{"GET", "/api/v1/events?fieldSelector=involvedObject.uid%3Dweb-1-uid", yes},
		{"GET", "/apis/events.k8s.io/v1/namespaces/a/events?fieldSelector=regarding.uid%3Dweb-1-uid", yes},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.uid%3Dother-uid", no},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.uid%3D", no},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.uid!%3Dweb-1-uid", no},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.name%3Dweb-1", no},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.kind%3DPod,involvedObject.name%3Dweb-1", yes},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.apiVersion%3Dv1,involvedObject.kind%3DPod,involvedObject.name%3Dweb-1", yes},
		{"GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.kind%3DPod,involvedObject.name%3Dweb-1,involvedObject.namespace%3Db", no},
		{"GET", "/api/v1/namespaces/a/events/e1", no},

		{"GET", "/api/v1/nodes/n1", no},
		{"GET", "/api/v1/nodes/n1/proxy/logs", no},
		{"GET", "/api/v1/namespaces/a", yes},
		{"DELETE", "/api/v1/namespaces/a", yes},
		{"GET", "/api/v1/namespaces/b", no},
		{"PUT", "/api/v1/namespaces/a/finalize", no},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/web", yes},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/made", no},

		{"GET", "/apis/argoproj.io/v1alpha1/namespaces/argocd/applications/child", no},
		{"PATCH", "/apis/argoproj.io/v1alpha1/namespaces/argocd/appprojects/p", no},
		{"PATCH", "/apis/argoproj.io/v1alpha1/namespaces/team/applicationsets/s", no},
		{"GET", "/api/v1/namespaces/argocd/secrets/s", no},
		{"PATCH", "/api/v1/namespaces/argocd/configmaps/argocd-agent-policy", no},
		{"GET", "/api/v1/namespaces/a/secrets/s", yes},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", no},
		{"POST", "/apis/authentication.k8s.io/v1/tokenreviews", no},
	} {
		d, err := ask(t, p, c.method, c.target, "{}")
		require.NoError(t, err, "%s %s", c.method, c.target)
		require.Equal(t, c.allowed, d.Allowed, "%s %s: %s", c.method, c.target, d.Reason)
		if c.allowed && strings.Contains(c.target, "/namespaces/") {
			require.Equal(t, "guestbook", d.Application, c.target)
		}
	}
}

// Not even of an Application: with these a hub could give itself or others what the policy does not.
func TestDefaultRuleOnlyReadsWhatDecidesRights(t *testing.T) {
	p := follows(t, newAPIServer(t, nil), known()).policy
	for _, object := range []string{
		"/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles/web", "/apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/web",
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/web", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/web",
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/web",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/web",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/webs.example.com", "/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com",
		"/apis/certificates.k8s.io/v1/certificatesigningrequests/web", "/apis/security.openshift.io/v1/securitycontextconstraints/web",
		"/api/v1/namespaces/a/serviceaccounts/web",
	} {
		for _, path := range []string{object, object + "/status", object + "/scale"} {
			d, err := ask(t, p, "GET", path, "")
			require.NoError(t, err)
			require.True(t, d.Allowed, "GET %s: %s", path, d.Reason)
			for _, method := range []string{"PATCH", "PUT", "DELETE"} {
				d, err := ask(t, p, method, path, "{}")
				require.NoError(t, err)
				require.False(t, d.Allowed, "%s %s", method, path)
				require.Contains(t, d.Reason, "objects that decide what others may do are only read. If it should, allow it in this cluster's ConfigMap")
			}
		}
		for _, path := range []string{object + "/token", object + "/approval", path.Dir(object)} {
			for _, method := range []string{"POST", "PUT", "DELETE"} {
				d, err := ask(t, p, method, path, "{}")
				require.NoError(t, err)
				require.False(t, d.Allowed, "%s %s", method, path)
			}
		}
	}
}

// An operator may want otherwise, such as where Argo CD manages itself.
func TestRuleAllowsWhatTheDefaultRuleOnlyReads(t *testing.T) {
	p := follows(t, newAPIServer(t, configMap("1", `rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [roles], verbs: [patch], namespaces: [a]}
- {apiGroups: [apps], resources: [deployments], verbs: [patch], namespaces: [argocd]}`)), known()).policy
	for _, path := range []string{
		"/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles/web", "/apis/apps/v1/namespaces/argocd/deployments/argocd-server",
	} {
		d, err := ask(t, p, "PATCH", path, "{}")
		require.NoError(t, err)
		require.True(t, d.Allowed, d.Reason)
		d, err = ask(t, p, "DELETE", path, "")
		require.NoError(t, err)
		require.False(t, d.Allowed)
	}
}

func TestDenialSaysHowToAllowTheRequest(t *testing.T) {
	p := follows(t, newAPIServer(t, nil), known()).policy
	q, err := policy.Parse(arriving("PATCH", "/apis/apps/v1/namespaces/a/deployments/other/scale"))
	require.NoError(t, err)
	d, err := p.Decide(t.Context(), q)
	require.NoError(t, err)
	forbidden := d.Forbidden(q)
	require.True(t, fails(forbidden, http.StatusForbidden))
	require.EqualError(t, forbidden, "forbidden: the hub may not patch deployments.apps/scale other in namespace a: the object belongs to no"+
		" Argo CD application that this cluster shares with the hub. If it should, allow it in this cluster's ConfigMap argocd/argocd-agent-policy")
	require.Equal(t, &metav1.StatusDetails{Group: "apps", Kind: "deployments", Name: "other"}, forbidden.Details)
}

// The caller may try again.
func TestLookupErrorIsNoDenial(t *testing.T) {
	p := follows(t, newAPIServer(t, nil), nil).policy
	for _, target := range []string{"/api/v1/namespaces/a/pods/p", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.uid%3Du"} {
		d, err := ask(t, p, "GET", target, "")
		require.ErrorContains(t, err, "redis is away")
		require.False(t, d.Allowed)
	}
}

func BenchmarkParseAndDecide(b *testing.B) {
	p := follows(b, newAPIServer(b, nil), known()).policy
	r := arriving("GET", "/apis/apps/v1/namespaces/a/deployments/web")
	for b.Loop() {
		q, err := policy.Parse(r)
		require.NoError(b, err)
		d, err := p.Decide(b.Context(), q)
		require.NoError(b, err)
		require.True(b, d.Allowed)
	}
}

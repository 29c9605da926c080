package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

func TestParseRulesListsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"rule: []":                                                        `unknown field "rule"`,
		"Rules: []":                                                       `unknown field "Rules"`,
		"rules: [{verb: [get]}]":                                          `unknown field "rules[0].verb"`,
		"applications: maybe":                                             "applications",
		"applications: true\napplications:":                               "already set",
		"impersonation: yes please":                                       `impersonation: want allow, record or deny, not "yes please"`,
		"rules: [{apiGroups: [''], resources: [pods]}]":                   "rules[0]: verbs:",
		"rules: [{verbs: [get]}]":                                         "rules[0]: apiGroups and resources:",
		"rules: [{verbs: [get], resources: [pods]}]":                      "rules[0]: apiGroups and resources:",
		"rules: [{verbs: [get], nonResourceURLs: [metrics]}]":             `nonResourceURLs: "metrics"`,
		"rules: [{verbs: [get], nonResourceURLs: ['/a/*/b']}]":            `nonResourceURLs: "/a/*/b"`,
		"rules: [{verbs: [get], nonResourceURLs: [/a], namespaces: [b]}]": "nonResourceURLs: they need a rule of their own",
		"rules: [{verbs: [get], apiGroups: [''], resources: [p], namespaces: ['[']}]": `namespaces: "["`,
		"{": "policy:",
	} {
		_, err := policy.ParseRules([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{"", "{}", "applications: false", "impersonation: allow", "rules: []"} {
		_, err := policy.ParseRules([]byte(text))
		require.NoError(t, err, text)
	}
}

func TestRules(t *testing.T) {
	const text = `
applications: false
rules:
- {apiGroups: [""], resources: ["pods", "pods/log"], verbs: ["get", "list", "watch"], namespaces: ["guestbook", "team-*"]}
- {apiGroups: ["apps"], resources: ["*"], verbs: ["*"], resourceNames: ["web"]}
- {apiGroups: ["*"], resources: ["*/scale"], verbs: ["patch"]}
- {apiGroups: ["batch"], resources: ["jobs"], verbs: ["create"], namespaces: ["*"]}
- {nonResourceURLs: ["/metrics", "/logs/*"], verbs: ["get"]}
`
	p := follows(t, newAPIServer(t, configMap("1", text)), known()).policy
	const yes, no = true, false
	for _, c := range []struct {
		method, target string
		allowed        bool
	}{
		{"GET", "/api/v1/namespaces/guestbook/pods/p", yes},
		{"GET", "/api/v1/namespaces/guestbook/pods", yes},
		{"GET", "/api/v1/namespaces/team-a/pods?watch=true", yes},
		{"GET", "/api/v1/namespaces/team-a/pods/p/log", yes},
		{"GET", "/api/v1/namespaces/other/pods/p", no},
		{"GET", "/api/v1/pods", no},
		{"DELETE", "/api/v1/namespaces/guestbook/pods/p", no},
		{"GET", "/api/v1/namespaces/guestbook/pods/p/exec", no},
		{"GET", "/api/v1/namespaces/guestbook/secrets/p", no},
		{"DELETE", "/apis/apps/v1/namespaces/x/deployments/web", yes},
		{"GET", "/apis/apps/v1/namespaces/x/deployments/web/status", yes},
		{"GET", "/apis/apps/v1/namespaces/x/deployments?fieldSelector=metadata.name=web", yes},
		{"GET", "/apis/apps/v1/namespaces/x/deployments", no},
		{"DELETE", "/apis/apps/v1/namespaces/x/deployments/other", no},
		{"PATCH", "/apis/x.y/v1/namespaces/x/things/t/scale", yes},
		{"PATCH", "/apis/x.y/v1/namespaces/x/things/t", no},
		{"POST", "/apis/batch/v1/namespaces/x/jobs", yes},
		{"GET", "/metrics", yes},
		{"GET", "/metrics/x", no},
		{"GET", "/logs/x/y", yes},
		{"POST", "/metrics", no},
		// Without the default rule not even these.
		{"GET", "/version", no},
		{"GET", "/apis/apps/v1/namespaces/a/statefulsets/s", no},
	} {
		d, err := ask(t, p, c.method, c.target, "")
		require.NoError(t, err)
		require.Equal(t, c.allowed, d.Allowed, "%s %s: %s", c.method, c.target, d.Reason)
	}
}

// documented returns the policies in docs/live-access.md, in their order.
func documented(t *testing.T) (texts []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/live-access.md")
	require.NoError(t, err)
	for i, block := range strings.Split(string(page), "```") {
		manifest, ok := strings.CutPrefix(block, "yaml\n")
		if !ok || i%2 == 0 {
			continue
		}
		var m corev1.ConfigMap
		require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &m))
		require.Equal(t, policy.ConfigMap, m.Name)
		texts = append(texts, m.Data[policy.Key])
	}
	return texts
}

// The policies in the documentation are valid, and deny what the page says.
func TestDocumentedPolicies(t *testing.T) {
	texts := documented(t)
	require.Len(t, texts, 2)
	standard := follows(t, newAPIServer(t, nil), known()).policy
	open := follows(t, newAPIServer(t, configMap("1", texts[0])), known()).policy
	closed := follows(t, newAPIServer(t, configMap("1", texts[1])), known()).policy
	const yes, no = true, false
	for _, c := range []struct {
		method, target         string
		standard, open, closed bool
	}{
		{"GET", "/api/v1/namespaces/a/secrets/s", yes, yes, no},
		{"PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/web", no, no, no},
		{"GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/web", yes, yes, no},
		{"PATCH", "/apis/apps/v1/namespaces/a/deployments/web", yes, yes, no},
		{"POST", "/api/v1/namespaces/a/pods/web-1/exec?command=sh", yes, yes, no},
		{"GET", "/version", yes, yes, yes},
		{"GET", "/apis/apps/v1", yes, yes, yes},
		{"GET", "/metrics", no, yes, no},
		{"GET", "/api/v1/namespaces/team-a/pods", no, yes, yes},
		{"POST", "/api/v1/namespaces/team-a/pods/p/portforward?ports=1", no, yes, no},
		{"GET", "/api/v1/namespaces/team-a/pods/p/log", no, yes, yes},
		{"POST", "/api/v1/namespaces/team-a/pods/p/exec?command=sh", no, no, no},
		{"GET", "/api/v1/namespaces/team-a/secrets/s", no, no, no},
		{"PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles/r", no, no, no},
		{"PATCH", "/apis/apps/v1/namespaces/team-a/deployments/d/scale", no, no, yes},
		{"DELETE", "/apis/batch/v1/namespaces/team-a/jobs/j", no, no, yes},
		{"GET", "/api/v1/namespaces/team-a/events?fieldSelector=involvedObject.uid%3Dx", no, no, yes},
	} {
		for p, want := range map[*policy.Policy]bool{standard: c.standard, open: c.open, closed: c.closed} {
			d, err := ask(t, p, c.method, c.target, "")
			require.NoError(t, err)
			require.Equal(t, want, d.Allowed, "%s %s: %s", c.method, c.target, d.Reason)
		}
	}
}

func TestImpersonation(t *testing.T) {
	for text, allowed := range map[string]bool{
		"{}": false, "impersonation: deny": false, "impersonation: allow": true, "impersonation: record": true,
	} {
		p := follows(t, newAPIServer(t, configMap("1", text)), known()).policy
		for _, target := range []string{"/api/v1/namespaces/a/pods/web-1", "/api/v1/namespaces/a/pods/web-2"} {
			r := arriving("GET", target)
			r.Header.Set("Impersonate-Group", "system:masters")
			q, err := policy.Parse(r)
			require.NoError(t, err)
			d, err := p.Decide(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, allowed && q.Name == "web-1", d.Allowed, "%s: %s", text, target)
			require.Equal(t, d.Allowed && text == "impersonation: allow", d.Impersonates, "%s: %s", text, target)
		}
	}
}

func FuzzParseRules(f *testing.F) {
	f.Add([]byte("applications: true\nimpersonation: deny\nrules:\n- {apiGroups: [''], resources: [pods], verbs: [get], namespaces: ['a*']}\n"))
	f.Add([]byte("rules: [{nonResourceURLs: ['/metrics', '*'], verbs: ['*']}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := policy.ParseRules(text)
		require.Equal(t, err == nil, rules != nil)
	})
}

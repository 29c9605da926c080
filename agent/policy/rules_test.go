package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/policy"
)

func TestParseRulesNamesWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		"rule: []":                                                        `unknown field "rule"`,
		"Rules: []":                                                       `unknown field "Rules"`,
		"rules: [{verb: [get]}]":                                          `unknown field "rules[0].verb"`,
		"applications: maybe":                                             "applications",
		"applications: true\napplications:":                               "already set",
		"impersonation: yes please":                                       `impersonation: want allow or deny, not "yes please"`,
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

func TestImpersonation(t *testing.T) {
	for text, allowed := range map[string]bool{"{}": false, "impersonation: deny": false, "impersonation: allow": true} {
		p := follows(t, newAPIServer(t, configMap("1", text)), known()).policy
		for _, target := range []string{"/api/v1/namespaces/a/pods/web-1", "/api/v1/namespaces/a/pods/web-2"} {
			r := arriving("GET", target)
			r.Header.Set("Impersonate-Group", "system:masters")
			q, err := policy.Parse(r)
			require.NoError(t, err)
			d, err := p.Decide(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, allowed && q.Name == "web-1", d.Allowed, "%s: %s", text, target)
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

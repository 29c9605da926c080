package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/argocd"
)

func TestAMirroredProjectIsForItsAgentAlone(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{}`: `{"sourceNamespaces":["berlin"]}`,
		`{"destinations":[],"sourceNamespaces":["*"],"sourceRepos":["*"]}`: `{"sourceNamespaces":["berlin"],"sourceRepos":["*"]}`,
		`{"destinations":[{"name":"in-cluster","namespace":"x"},{"server":"*","namespace":"x"},{"server":"*","namespace":"!y"}]}`: `{"sourceNamespaces":["berlin"],"destinations":[
			{"name":"berlin","server":"*","namespace":"x"},{"name":"berlin","server":"*","namespace":"!y"}]}`,
		`{"roles":[{"name":"r","groups":["g"],"jwtTokens":[{"iat":1}],"policies":["p, proj:own:r, applications, get, own/*, allow"]}, 7]}`: `{"sourceNamespaces":["berlin"],
			"roles":[{"name":"r","groups":["g"],"policies":["p, proj:berlin-own:r, applications, get, berlin-own/berlin/*, allow"]}, 7]}`,
	} {
		content, err := argocd.MirrorProject("berlin", "own", argocd.Content{Spec: json.RawMessage(spec), Labels: map[string]string{"a": "b"}})
		require.NoError(t, err, spec)
		require.JSONEq(t, want, string(content.Spec), spec)
		require.Equal(t, map[string]string{"a": "b"}, content.Labels)
	}
	for _, spec := range []string{`[]`, `{`, `{"destinations":7}`} {
		_, err := argocd.MirrorProject("berlin", "own", argocd.Content{Spec: json.RawMessage(spec)})
		require.ErrorContains(t, err, "the project's spec", spec)
	}
}

// What a role may do with the project's objects on the spoke it may do with them where the hub shows them.
func TestPoliciesOfAMirroredProject(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		"p, proj:own:r, applications, sync, own/*, allow":           "p, proj:berlin-own:r, applications, sync, berlin-own/berlin/*, allow",
		"p,proj:own:r,applications,sync,own/guestbook,deny":         "p, proj:berlin-own:r, applications, sync, berlin-own/berlin/guestbook, deny",
		"p, proj:own:r, applicationsets, get, own/x, allow":         "p, proj:berlin-own:r, applicationsets, get, berlin-own/berlin/x, allow",
		"p, proj:own:r, logs, get, own/*, allow":                    "p, proj:berlin-own:r, logs, get, berlin-own/berlin/*, allow",
		"p, proj:own:r, exec, create, own/*, allow":                 "p, proj:berlin-own:r, exec, create, berlin-own/berlin/*, allow",
		"p, proj:own:r, repositories, get, own/*, allow":            "p, proj:berlin-own:r, repositories, get, berlin-own/*, allow",
		"p, proj:own:r, clusters, get, own/https://x, allow":        "p, proj:berlin-own:r, clusters, get, berlin-own/https://x, allow",
		"p, proj:own:r, applications, get, own/other/app, allow":    "p, proj:berlin-own:r, applications, get, berlin-own/berlin/other/app, allow", // of those the hub shows none
		"p, proj:own:r, applications, get, own-2/x, allow":          "",                                                                            // nothing that an agent may say on the hub, as those below
		"p, proj:own-2:r, applications, get, own/x, allow":          "",
		"p, role:x, applications, get, other/x, allow":              "",
		"g, somebody, proj:own:r":                                   "",
		"":                                                          "",
		"p, proj:own:r, applications, action/apps/x, own/*, allow":  "p, proj:berlin-own:r, applications, action/apps/x, berlin-own/berlin/*, allow",
		"p, proj:own:r, applications, get, own/*, allow, and, more": "",
	} {
		spec, err := json.Marshal(map[string]any{"roles": []any{map[string]any{"name": "r", "policies": []any{policy, 7}}}})
		require.NoError(t, err)
		content, err := argocd.MirrorProject("berlin", "own", argocd.Content{Spec: spec})
		require.NoError(t, err)
		var got struct{ Roles []struct{ Policies []any } }
		require.NoError(t, json.Unmarshal(content.Spec, &got))
		expected := []any{}
		if want != "" {
			expected = []any{want}
		}
		require.Equal(t, expected, got.Roles[0].Policies, policy)
	}
}

package identity_test

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

func TestTemplateMatchesWholeIDs(t *testing.T) {
	t.Parallel()
	for template, ids := range map[string]map[string]string{ // what {agent} is, empty if the ID does not match
		"spiffe://{trustDomain}/ns/argocd/sa/argocd-agent/agent/{agent}": {
			"spiffe://hub.test/ns/argocd/sa/argocd-agent/agent/berlin":       "berlin",
			"spiffe://other.test/ns/argocd/sa/argocd-agent/agent/berlin":     "",
			"spiffe://hub.test.evil/ns/argocd/sa/argocd-agent/agent/berlin":  "",
			"spiffe://evil.hub.test/ns/argocd/sa/argocd-agent/agent/berlin":  "",
			"spiffe://hub.test/ns/argocd/sa/argocd-agent/agent/berlin/x":     "",
			"spiffe://hub.test/x/ns/argocd/sa/argocd-agent/agent/berlin":     "",
			"spiffe://hub.test/ns/other/sa/argocd-agent/agent/berlin":        "",
			"spiffe://hub.test/ns/argocd/sa/argocd-agent/agent":              "",
			"spiffe://hub.test/ns/argocd/sa/argocd-agent2/agent/berlin":      "",
			"spiffe://hub.test/NS/argocd/sa/argocd-agent/agent/berlin":       "",
			"spiffe://hub.test/ns/argocd/sa/argocd-agent/agent/berlin.paris": "berlin.paris", // which is no agent's name
		},
		"spiffe://{agent}.spokes.test/ns/argocd/sa/argocd-agent": {
			"spiffe://berlin.spokes.test/ns/argocd/sa/argocd-agent":   "berlin",
			"spiffe://a.berlin.spokes.test/ns/argocd/sa/argocd-agent": "",
			"spiffe://spokes.test/ns/argocd/sa/argocd-agent":          "",
			"spiffe://berlin.spokes/test/ns/argocd/sa/argocd-agent":   "",
		},
		"spiffe://{agent}/ns/argocd/sa/argocd-agent": {
			"spiffe://berlin/ns/argocd/sa/argocd-agent":      "berlin",
			"spiffe://berlin.test/ns/argocd/sa/argocd-agent": "",
		},
		"spiffe://mesh.test/ns/argocd-{agent}/sa/argocd-agent": {
			"spiffe://mesh.test/ns/argocd-berlin/sa/argocd-agent": "berlin",
			"spiffe://mesh.test/ns/argocd-/sa/argocd-agent":       "",
			"spiffe://mesh.test/ns/argocd/sa/argocd-agent":        "",
		},
	} {
		parsed, err := identity.ParseTemplate(template, "hub.test", "agent")
		require.NoError(t, err)
		for id, want := range ids {
			got, ok := parsed.Match(spiffeid.RequireFromString(id))
			require.Equal(t, want != "", ok, id)
			require.Equal(t, want, got["agent"], id)
		}
	}
	_, ok := identity.Template{}.Match(spiffeid.RequireFromString("spiffe://hub.test/x"))
	require.False(t, ok)
}

func TestBadTemplates(t *testing.T) {
	t.Parallel()
	for template, want := range map[string]string{
		"":                               `begin with "spiffe://"`,
		"https://hub.test/{agent}":       `begin with "spiffe://"`,
		"spiffe://hub.test/agent":        "want {agent} in it, once",
		"spiffe://hub.test":              "path",
		"spiffe://{agent}":               "path",
		"spiffe://{agent}/{agent}":       "want {agent} in it, once",
		"spiffe://hub.test/{agent}/{x}":  "{x} means nothing here",
		"spiffe://hub.test/{agent}{x}":   "one variable in braces",
		"spiffe://hub.test/{agent":       "one variable in braces",
		"spiffe://hub.test/{}/{agent}":   "one variable in braces",
		"spiffe://HUB.test/{agent}":      "trust domain",
		"spiffe://hub.test/{agent}/":     "path",
		"spiffe://hub.test//{agent}":     "path",
		"spiffe://hub.test/../{agent}":   "path",
		"spiffe://hub.test/a b/{agent}":  "path",
		"spiffe://hub.test:1/{agent}":    "trust domain",
		"spiffe://{trustDomain}/{agent}": "set --trust-domain",
	} {
		_, err := identity.ParseTemplate(template, "", "agent")
		require.ErrorContains(t, err, want, template)
	}
}

// What an agent is called has to be read again from the ID that it is given.
func TestTemplatesGiveIDs(t *testing.T) {
	t.Parallel()
	const auth = "spiffe://{trustDomain}/agent/{agent},spiffe://{agent}.spokes.test/agent,spiffe://{agent}/agent,spiffe://mesh.test/ns/argocd-{agent}/sa/x"
	templates, err := identity.ParseAgentTemplates(auth, "hub.test")
	require.NoError(t, err)
	require.Len(t, templates, 4)
	for i, want := range []struct{ id, trustDomain string }{
		{"spiffe://hub.test/agent/berlin-1", "hub.test"},
		{"spiffe://berlin-1.spokes.test/agent", ""}, // each agent has another
		{"spiffe://berlin-1/agent", ""},
		{"spiffe://mesh.test/ns/argocd-berlin-1/sa/x", "mesh.test"},
	} {
		id, err := templates[i].ID("berlin-1")
		require.NoError(t, err)
		require.Equal(t, want.id, id.String())
		values, ok := templates[i].Match(id)
		require.True(t, ok)
		require.Equal(t, map[string]string{"agent": "berlin-1"}, values)
		domain, one := templates[i].TrustDomain()
		require.Equal(t, want.trustDomain, domain.Name())
		require.Equal(t, want.trustDomain != "", one)
	}
	_, err = templates[0].ID("ber/../lin")
	require.ErrorContains(t, err, `SPIFFE ID of agent "ber/../lin" by the form "spiffe://hub.test/agent/{agent}"`)

	for _, auth := range []string{"spiffe:", identity.DefaultAuth, "mtls:uri:^spiffe://hub.test/([^/]+)$"} {
		templates, err := identity.ParseAgentTemplates(auth, "")
		require.NoError(t, err)
		require.Empty(t, templates)
	}
	_, err = identity.ParseAgentTemplates(auth, "")
	require.ErrorContains(t, err, "set --trust-domain")
}

package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// translated is what becomes of a field of a project, empty if nothing is left.
func translated(t *testing.T, raw json.RawMessage, field string) string {
	t.Helper()
	var spec map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(raw, &spec))
	return string(spec[field])
}

// asAgentsHave is a field of a project that is for berlin, as that has it.
func asAgentsHave(t *testing.T, v argocd.Recipient, field, value string) string {
	t.Helper()
	content, is := aProject(`{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}],"` + field + `":` + value + `}`).ForAgent(v)
	require.True(t, is)
	return translated(t, content.Spec, field)
}

// asTheHubShows is a field of a project of berlin's own, as the hub shows it.
func asTheHubShows(t *testing.T, field, value string) string {
	t.Helper()
	content, err := argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: json.RawMessage(`{"` + field + `":` + value + `}`)})
	require.NoError(t, err)
	return translated(t, content.Spec, field)
}

// By what the windows of the hub's projects call an agent's cluster, and by what those of its own.
func TestSyncWindowsOfClusters(t *testing.T) {
	t.Parallel()
	for clusters, want := range map[string]struct{ agents, own bool }{
		`["berlin"]`: {agents: true},
		`["https://proxy:9090?agentName=berlin"]`:     {agents: true},
		`["https://old:1?agentName=b*"]`:              {agents: true},
		`["in-cluster"]`:                              {own: true},
		`["https://kubernetes.default.svc"]`:          {own: true},
		`["*"]`:                                       {agents: true, own: true},
		`["paris"]`:                                   {},
		`[7]`:                                         {},
		`["https://old:1?agentName=paris"]`:           {},
		`["https://old:1?agentName=!paris"]`:          {},
		`["!https://old:1?agentName=berlin","other"]`: {},
	} {
		t.Run(clusters, func(t *testing.T) {
			t.Parallel()
			windows := `[{"kind":"deny","clusters":` + clusters + `}]`
			agents, own := asAgentsHave(t, recipient(), "syncWindows", windows), asTheHubShows(t, "syncWindows", windows)
			if want.agents {
				require.JSONEq(t, `[{"kind":"deny","clusters":["in-cluster","https://kubernetes.default.svc"]}]`, agents)
			} else {
				require.Empty(t, agents)
			}
			if want.own {
				require.JSONEq(t, `[{"kind":"deny","clusters":["berlin"]}]`, own)
			} else {
				require.Empty(t, own)
			}
		})
	}
}

// Where nobody knows the address of an agent's cluster, it goes by its name.
func TestSyncWindowsOfAgentWithoutAddress(t *testing.T) {
	t.Parallel()
	v := recipient()
	v.Server = ""
	for clusters, want := range map[string]bool{
		`["berlin"]`: true, `["*"]`: true, `["https://old:1?agentName=berlin"]`: true, `["https://*"]`: false, `["paris"]`: false,
	} {
		got := asAgentsHave(t, v, "syncWindows", `[{"kind":"deny","clusters":`+clusters+`}]`)
		require.Equal(t, want, got != "", clusters)
	}
}

// What is left of a window that names clusters, none of which is the agent's.
func TestSyncWindowsThatCannotMatchAreDropped(t *testing.T) {
	t.Parallel()
	for windows, want := range map[string]string{
		`[]`: ``, `null`: `null`, `7`: `7`, `[7,null]`: ``,
		`[{"clusters":["paris"]}]`:                                                   ``,
		`[{"clusters":["paris"],"applications":[],"namespaces":[]}]`:                 ``,
		`[{"clusters":["paris"],"applications":["a"]}]`:                              `[{"applications":["a"]}]`,
		`[{"clusters":["paris"],"namespaces":["n"],"duration":"1h"}]`:                `[{"namespaces":["n"],"duration":"1h"}]`,
		`[{"clusters":["paris"],"namespaces":["n"],"andOperator":true}]`:             ``,
		`[{"clusters":["paris"],"applications":["a"],"andOperator":true}]`:           ``,
		`[{"clusters":["paris"],"namespaces":["n"],"andOperator":false}]`:            `[{"namespaces":["n"],"andOperator":false}]`,
		`[{"applications":["a"],"andOperator":true}]`:                                `[{"applications":["a"],"andOperator":true}]`,
		`[{"applications":["a"],"clusters":[]}]`:                                     `[{"applications":["a"],"clusters":[]}]`,
		`[{"kind":"allow","clusters":["paris"]},{"kind":"deny","namespaces":["n"]}]`: `[{"kind":"deny","namespaces":["n"]}]`,
	} {
		for _, got := range []string{asAgentsHave(t, recipient(), "syncWindows", windows), asTheHubShows(t, "syncWindows", windows)} {
			if want == "" {
				require.Empty(t, got, windows)
			} else {
				require.JSONEq(t, want, got, windows)
			}
		}
	}
	and := `[{"clusters":["*"],"namespaces":["n"],"andOperator":true}]`
	require.JSONEq(t, `[{"clusters":["berlin"],"namespaces":["n"],"andOperator":true}]`, asTheHubShows(t, "syncWindows", and))
}

func TestDestinationServiceAccountsOfClusters(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]struct{ agents, own bool }{
		"https://proxy:9090?agentName=berlin": {agents: true},
		"https://old:1?agentName=b*":          {agents: true},
		"https://kubernetes.default.svc":      {own: true},
		"*":                                   {agents: true, own: true},
		"berlin":                              {}, // by address alone
		"in-cluster":                          {},
	} {
		account := func(server string) string {
			return `[{"server":"` + server + `","namespace":"n","defaultServiceAccount":"s"}]`
		}
		agents := asAgentsHave(t, recipient(), "destinationServiceAccounts", account(server))
		own := asTheHubShows(t, "destinationServiceAccounts", account(server))
		require.Equal(t, want.agents, agents != "", server)
		if want.agents {
			require.JSONEq(t, account("https://kubernetes.default.svc"), agents)
		}
		require.Equal(t, want.own, own != "", server)
		if want.own {
			require.JSONEq(t, account("*?agentName=berlin"), own)
		}
	}
}

// The other side's Secrets of clusters belong to no project.
func TestPermitOnlyProjectScopedClustersIsDropped(t *testing.T) {
	t.Parallel()
	require.Empty(t, asAgentsHave(t, recipient(), "permitOnlyProjectScopedClusters", `true`))
	require.Empty(t, asTheHubShows(t, "permitOnlyProjectScopedClusters", `true`))
}

// A project is for several agents: what one of them gets changes nothing for the next.
func TestProjectForOneAgentDoesNotChangeAnothers(t *testing.T) {
	t.Parallel()
	project := aProject(`{"sourceNamespaces":["*"],"destinations":[{"name":"*","namespace":"*"}],
		"syncWindows":[{"kind":"deny","clusters":["paris"]},{"kind":"allow","clusters":["berlin"]}],
		"destinationServiceAccounts":[{"server":"https://p?agentName=paris"},{"server":"https://p?agentName=berlin"}]}`)
	for agent, kind := range map[string]string{"berlin": "allow", "paris": "deny", "rome": ""} {
		for range 2 {
			content, is := project.ForAgent(argocd.Recipient{Agent: agent})
			require.True(t, is)
			if kind == "" {
				require.Empty(t, translated(t, content.Spec, "syncWindows"))
				require.Empty(t, translated(t, content.Spec, "destinationServiceAccounts"))
				continue
			}
			require.JSONEq(t, `[{"kind":"`+kind+`","clusters":["in-cluster","https://kubernetes.default.svc"]}]`, translated(t, content.Spec, "syncWindows"))
			require.JSONEq(t, `[{"server":"https://kubernetes.default.svc"}]`, translated(t, content.Spec, "destinationServiceAccounts"))
		}
	}
}

package argocd_test

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

func TestMirroredProjectIsForItsAgentAlone(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{}`: `{"sourceNamespaces":["berlin"]}`,
		`{"destinations":[],"sourceNamespaces":["*"],"sourceRepos":["*"]}`: `{"sourceNamespaces":["berlin"],"sourceRepos":["*"]}`,
		`{"destinations":[{"name":"in-cluster","namespace":"x"},{"server":"*","namespace":"y"}]}`: `{"sourceNamespaces":["berlin"],"destinations":[
			{"name":"berlin","namespace":"x"},{"name":"berlin","namespace":"y"}]}`,
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

// What a project says of the cluster that it is in, and the namespaces that it permits on the hub then. On the hub nothing but
// the agent's name is a destination: an address there could be another cluster's, and so could a denial.
func TestMirroredProjectPermitsNamespacesOfItsOwnCluster(t *testing.T) {
	t.Parallel()
	const own, denied = `"server":"https://kubernetes.default.svc"`, `"server":"!https://kubernetes.default.svc"`
	for name, c := range map[string]struct {
		destinations string
		want         []string
	}{
		"none":                               {`[]`, nil},
		"agents, by address":                 {`[{"server":"https://proxy:9090?agentName=*","namespace":"x"}]`, nil},
		"all but the agents' addresses":      {`[{"server":"!https://proxy?agentName=*","namespace":"x"}]`, []string{"x"}},
		"some namespaces":                    {`[{` + own + `,"namespace":"x-*"},{` + own + `,"namespace":"y"},{"name":"*","namespace":"y"}]`, []string{"x-*", "y"}},
		"all namespaces":                     {`[{` + own + `,"namespace":"x"},{` + own + `,"namespace":"*"}]`, []string{"*"}},
		"all but a namespace":                {`[{` + own + `,"namespace":"!kube-system"},{` + own + `,"namespace":"x"}]`, []string{"!kube-system"}},
		"all, and all but a namespace":       {`[{` + own + `,"namespace":"*"},{` + own + `,"namespace":"!kube-*"}]`, []string{"!kube-*"}},
		"all but some namespaces":            {`[{` + own + `,"namespace":"!a"},{` + own + `,"namespace":"!b-*"},{` + own + `,"namespace":"!a"}]`, []string{"!{a,{b-*}}"}},
		"all but what no namespace is":       {`[{` + own + `,"namespace":"!a["},{` + own + `,"namespace":"!b"}]`, []string{"!b"}},
		"only a denial":                      {`[{` + denied + `,"namespace":"kube-system"}]`, nil},
		"a denial in all but a namespace":    {`[{` + own + `,"namespace":"!a"},{` + denied + `,"namespace":"b"}]`, []string{"!{a,b}"}},
		"a denial of a part":                 {`[{` + own + `,"namespace":"prod-*"},{` + denied + `,"namespace":"prod-secret"}]`, nil},
		"a denial of what may be a part":     {`[{` + own + `,"namespace":"prod-*"},{` + denied + `,"namespace":"*-secret"}]`, nil},
		"a denial of all but a namespace":    {`[{` + own + `,"namespace":"*"},{` + denied + `,"namespace":"!kube-system"}]`, nil},
		"a denial beside its name":           {`[{"name":"in-cluster",` + denied + `,"namespace":"x"}]`, nil},
		"a denial of namespaces of another":  {`[{` + own + `,"namespace":"x"},{"name":"paris","namespace":"!x"}]`, []string{"x"}},
		"a denial of a namespace, by agents": {`[{` + own + `,"namespace":"x"},{"server":"!https://p?agentName=*","namespace":"x"}]`, []string{"x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			content, err := argocd.MirrorProject("berlin", "own", argocd.Content{Spec: json.RawMessage(`{"destinations":` + c.destinations + `}`)})
			require.NoError(t, err)
			var got struct{ Destinations []map[string]string }
			require.NoError(t, json.Unmarshal(content.Spec, &got))
			var want []map[string]string
			for _, namespace := range c.want {
				want = append(want, map[string]string{"name": "berlin", "namespace": namespace})
			}
			require.Equal(t, want, got.Destinations)
		})
	}
}

// What a role may do with the project's objects on the spoke it may do with them where the hub shows them.
func TestPoliciesOfMirroredProject(t *testing.T) {
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

// An agent may have any number of them. What grows with the square of it would keep the hub busy, or fill its memory.
func TestMirroredProjectWithManyDestinations(t *testing.T) {
	t.Parallel()
	const count = 5_000
	mirror := func(patterns ...map[string]string) (argocd.Content, error) {
		destinations := make([]map[string]string, 0, count*len(patterns))
		for i := range count {
			for _, p := range patterns {
				d := maps.Clone(p)
				d["namespace"] += strconv.Itoa(i)
				destinations = append(destinations, d)
			}
		}
		spec, err := json.Marshal(map[string]any{"destinations": destinations})
		require.NoError(t, err)
		return argocd.MirrorProject("berlin", "own", argocd.Content{Spec: spec})
	}
	var got struct{ Destinations []struct{ Namespace string } }
	content, err := mirror(map[string]string{"name": argocd.InCluster, "namespace": "team-"})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content.Spec, &got))
	require.Len(t, got.Destinations, count)

	denial := map[string]string{"server": "!https://kubernetes.default.svc", "namespace": "kube-"}
	for _, permission := range []string{"team-", "!team-"} {
		_, err = mirror(map[string]string{"name": argocd.InCluster, "namespace": permission}, denial)
		require.ErrorContains(t, err, "want fewer destinations that deny namespaces", permission)
	}
	content, err = mirror(map[string]string{"server": "https://kubernetes.default.svc", "namespace": "!team-"}, denial)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content.Spec, &got))
	require.Len(t, got.Destinations, 1, "all but a list")
}

// Nor does the time grow with a power of how long a text is, here or where Argo CD matches the patterns that the hub shows.
func TestMirroredProjectWithPatternsThatTakeTooLongIsRefused(t *testing.T) {
	t.Parallel()
	const here = `"server":"https://kubernetes.default.svc"`
	slow, braces := "*b"+strings.Repeat("*a", 14), strings.Repeat("{,?}", 20)
	for name, spec := range map[string]string{
		"permission":      `{"destinations":[{` + here + `,"namespace":"` + slow + `"}]}`,
		"denial":          `{"destinations":[{` + here + `,"namespace":"!` + slow + `"}]}`,
		"denied server":   `{"destinations":[{"server":"!https://kubernetes.default.svc","namespace":"x` + slow + `"}]}`,
		"server":          `{"destinations":[{"server":"` + braces + `","namespace":"a"}]}`,
		"source":          `{"sourceRepos":["https://` + slow + `"]}`,
		"kind":            `{"clusterResourceWhitelist":[{"group":"*","kind":"` + slow + `"}]}`,
		"denied kind":     `{"namespaceResourceBlacklist":[{"group":"` + slow + `","kind":"*"}]}`,
		"service account": `{"destinationServiceAccounts":[{` + here + `,"namespace":"` + slow + `","defaultServiceAccount":"a"}]}`,
		"window":          `{"syncWindows":[{"kind":"deny","schedule":"* * * * *","duration":"1h","applications":["` + slow + `"]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := argocd.MirrorProject("berlin", "own", argocd.Content{Spec: json.RawMessage(spec)})
			require.ErrorContains(t, err, "want a glob")
		})
	}
}

// What takes long together is refused too.
func TestMirroredProjectWithTooMuchToMatchIsRefused(t *testing.T) {
	t.Parallel()
	server := "https://kubernetes.*a*a*a*a*a*a*a*a*a.svc"
	for name, pattern := range map[string]string{"matched": server, "read": strings.Repeat("{a,b}", 8)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			destinations := make([]map[string]string, 20_000)
			for i := range destinations {
				destinations[i] = map[string]string{"server": pattern, "namespace": "a"}
			}
			spec, err := json.Marshal(map[string]any{"destinations": destinations})
			require.NoError(t, err)
			_, err = argocd.MirrorProject("berlin", "own", argocd.Content{Spec: spec})
			require.ErrorContains(t, err, "it takes too long to match all of them")
		})
	}
}

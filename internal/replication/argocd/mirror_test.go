package argocd_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
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
		`{"roles":[{"name":"r","groups":["g"],"jwtTokens":[{"iat":1}],"policies":["p, proj:own:r, applications, get, own/*, allow"]}, 7]}`: `{"sourceNamespaces":["berlin"]}`,
	} {
		content, err := argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: json.RawMessage(spec)})
		require.NoError(t, err, spec)
		require.JSONEq(t, want, string(content.Spec), spec)
	}
	for _, spec := range []string{`[]`, `{`, `{"destinations":7}`} {
		_, err := argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: json.RawMessage(spec)})
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
			content, err := argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: json.RawMessage(`{"destinations":` + c.destinations + `}`)})
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

// withRoles are rules by which roles are shown.
func withRoles(t *testing.T) argocd.MirrorRules {
	t.Helper()
	rules, err := argocd.NewMirrorRules(nil, nil, true)
	require.NoError(t, err)
	return rules
}

// rolesOnHub returns the roles that the hub shows of a project's.
func rolesOnHub(t *testing.T, roles ...any) []any {
	t.Helper()
	spec, err := json.Marshal(map[string]any{"roles": roles})
	require.NoError(t, err)
	content, err := argocd.MirrorProject("berlin", withRoles(t), "own", argocd.Content{Spec: spec})
	require.NoError(t, err)
	var got struct{ Roles []any }
	require.NoError(t, json.Unmarshal(content.Spec, &got))
	return got.Roles
}

// What a role may do with the project's objects on the spoke it may do with them where the hub shows them, and what is no such line
// is left out.
func TestPoliciesOfMirroredProject(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		"p, proj:own:r, applications, sync, own/*, allow":                            "p, proj:berlin-own:r, applications, sync, berlin-own/berlin/*, allow",
		"p,proj:own:r,applications,sync,own/guestbook,deny":                          "p, proj:berlin-own:r, applications, sync, berlin-own/berlin/guestbook, deny",
		"p, proj:own:r, applicationsets, get, own/x, allow":                          "p, proj:berlin-own:r, applicationsets, get, berlin-own/berlin/x, allow",
		"p, proj:own:r, logs, get, own/*, allow":                                     "p, proj:berlin-own:r, logs, get, berlin-own/berlin/*, allow",
		"p, proj:own:r, exec, create, own/*, allow":                                  "p, proj:berlin-own:r, exec, create, berlin-own/berlin/*, allow",
		"p, proj:own:r, applications, get, own/other/app, allow":                     "p, proj:berlin-own:r, applications, get, berlin-own/berlin/other/app, allow", // of those the hub shows none
		"p, proj:own:r, applications, action/apps/x, own/*, allow":                   "p, proj:berlin-own:r, applications, action/apps/x, berlin-own/berlin/*, allow",
		"p, proj:own:r, repositories, get, own/*, allow":                             "",
		"p, proj:own:r, clusters, create, own/*, allow":                              "",
		"p, proj:own:r, *, *, own/*, allow":                                          "",
		"p, proj:own:r, app*, get, own/*, allow":                                     "",
		"p, proj:own:r, applications, everything, own/*, allow":                      "",
		"p, proj:own:r, applications, action/{a}, own/*, allow":                      "",
		"p, proj:own:r, applications, get, own/{a}, allow":                           "",
		"p, proj:own:r, applications, get, own/a/b/c, allow":                         "",
		"p, proj:own:r, applications, get, own/, allow":                              "",
		"p, proj:own:r, applications, get, own/*, perhaps":                           "",
		"p, proj:own:s, applications, get, own/*, allow":                             "", // of another role
		"p, proj:own:gone, applications, get, own/*, allow":                          "", // of none
		"p, proj:own:r, applications, get, own-2/x, allow":                           "",
		"p, proj:own-2:r, applications, get, own/x, allow":                           "",
		"p, role:x, applications, get, other/x, allow":                               "",
		"p, proj:own:r, applications, get, own/*, allow\np, mallory, *, *, *, allow": "",
		"p, proj:own:r, applications, get, own/x\r\np, allow":                        "",
		`p, proj:own:r, "applications", get, own/*, allow`:                           "",
		"g, somebody, proj:own:r":                                                    "",
		"":                                                                           "",
		"p, proj:own:r, applications, get, own/*, allow, and, more":                  "",
	} {
		var expected []any
		if expected = []any{}; want != "" {
			expected = []any{want}
		}
		got := rolesOnHub(t, map[string]any{"name": "r", "policies": []any{policy, 7, policy}}, map[string]any{"name": "s"})
		require.Equal(t, expected, got[0].(map[string]any)["policies"], policy)
	}
}

func TestRolesOfMirroredProject(t *testing.T) {
	t.Parallel()
	for name, shown := range map[string]bool{"r": true, "reader-2_x": true, "": false, "-r": false, "r\np, mallory, *, *, *, allow": false, "r, x": false, `"r"`: false} {
		require.Len(t, rolesOnHub(t, map[string]any{"name": name}), map[bool]int{true: 1}[shown], name)
	}
	require.Len(t, rolesOnHub(t, map[string]any{"name": "r"}, map[string]any{"name": "r"}, 7), 1)
	for group, shown := range map[string]bool{
		"people": true, "org:team/x@example.com": true, "CN=people": true, "": false, "a,b": false, `"people"`: false, " people": false, "#people": false,
		"people\np, mallory, *, *, *, allow": false, "people\x00": false, "people\u2028x": false, "role:admin": false, "proj:payments:admin": false,
	} {
		role := rolesOnHub(t, map[string]any{"name": "r", "groups": []any{group, 7, group}})[0].(map[string]any)
		if shown {
			require.Equal(t, []any{group}, role["groups"], group)
		} else {
			require.NotContains(t, role, "groups", group)
		}
	}
	// A denial that cannot be shown leaves nothing to allow.
	const allows = "p, proj:own:r, applications, get, own/*, allow"
	for _, denial := range []string{"p, proj:own:r, *, *, own/x, deny", "p, proj:own:s, applications, get, own/{x}, deny", "x deny"} {
		for _, in := range []string{"r", "no name"} {
			got := rolesOnHub(t, map[string]any{"name": "r", "policies": []any{allows}}, map[string]any{"name": strings.Replace(in, "r", "s", 1), "policies": []any{denial}})
			require.Equal(t, []any{}, got[0].(map[string]any)["policies"], denial)
		}
	}
	require.Equal(t, []any{allows[:0] + "p, proj:berlin-own:r, applications, get, berlin-own/berlin/*, allow"},
		rolesOnHub(t, map[string]any{"name": "r", "jwtTokens": []any{1}, "policies": []any{allows}})[0].(map[string]any)["policies"])
}

// Labels and annotations are for programs. Those of the hub do nothing because an agent says so.
func TestLabelsAndAnnotationsAreShownByRules(t *testing.T) {
	t.Parallel()
	all, err := argocd.NewMirrorRules([]string{"*"}, []string{"*"}, false)
	require.NoError(t, err)
	some, err := argocd.NewMirrorRules([]string{"team"}, []string{"example.com/*"}, false)
	require.NoError(t, err)
	require.NotEqual(t, all.ID(), some.ID())
	require.NotEqual(t, some.ID(), argocd.MirrorRules{}.ID())
	keys := map[string]string{}
	for _, key := range []string{
		"team", "example.com/a", "link.argocd.argoproj.io/external-link", "notifications.argoproj.io/subscribe.on-sync.slack",
		"notified.notifications.argoproj.io", "argocd-image-updater.argoproj.io/image-list", "argocd.argoproj.io/refresh",
		"argocd.argoproj.io/tracking-id", "argocd.argoproj.io/principal-uid", "argocd-agent.argoproj-labs.io/intent",
		"argocd-agent.argoproj-labs.io/agent", "argocd-agent.argoproj-labs.io/ignore-sync", "app.kubernetes.io/instance",
		"kubectl.kubernetes.io/restartedAt", "argoproj.io/x", "x.argoproj-labs.io",
	} {
		keys[key] = "x"
	}
	shown := func(entries map[string]string) []string { return slices.Sorted(maps.Keys(entries)) }
	const link = "link.argocd.argoproj.io/external-link"
	for _, c := range []struct {
		rules               argocd.MirrorRules
		labels, annotations []string
	}{
		{argocd.MirrorRules{}, nil, []string{link}},
		{some, []string{"team"}, []string{"example.com/a", link}},
		{all, []string{"example.com/a", "team"}, []string{"example.com/a", link, "team"}},
	} {
		d, err := argocd.MirrorDefinition("berlin", c.rules, argocd.Definition{Labels: keys, Annotations: keys, Finalizers: []string{"example.com/stuck"}})
		require.NoError(t, err)
		require.Equal(t, c.labels, shown(d.Labels))
		require.Equal(t, c.annotations, shown(d.Annotations))
		require.Empty(t, d.Finalizers)
		p, err := argocd.MirrorProject("berlin", c.rules, "own", argocd.Content{Labels: keys, Annotations: keys, Type: "x", Data: keys, BinaryData: keys})
		require.NoError(t, err)
		require.Equal(t, argocd.Content{Labels: d.Labels, Annotations: d.Annotations, Spec: p.Spec}, p)
	}
	require.Error(t, argocd.CheckKeys([]string{"["}))
	require.Error(t, argocd.CheckKeys([]string{strings.Repeat("*a", 40)}))
	require.NoError(t, argocd.CheckKeys([]string{"team", "example.com/*"}))
}

// FuzzMirrorProject has an agent send any project. What the hub shows names the agent's cluster and namespace and no others, and
// each line that Argo CD reads of its roles is about the agent's own.
func FuzzMirrorProject(f *testing.F) {
	for _, spec := range []string{
		`{"roles":[{"name":"r","groups":["g"],"policies":["p, proj:own:r, applications, get, own/*, allow"]}]}`,
		`{"roles":[{"name":"r","policies":["p, proj:own:r, *, *, own/*, allow\np, mallory, *, *, *, allow"]}],"destinations":[{"server":"*"}]}`,
		`{"destinations":[{"name":"in-cluster","namespace":"{a,b}"},{"server":"!https://kubernetes.default.svc","namespace":"x"}],"syncWindows":[{"clusters":["*"]}]}`,
	} {
		f.Add([]byte(spec))
	}
	rules, err := argocd.NewMirrorRules([]string{"*"}, []string{"*"}, true)
	require.NoError(f, err)
	line := regexp.MustCompile(`^p, proj:berlin-own:[-\w]+, (applications|applicationsets|logs|exec), [-\w.*/]+, berlin-own/berlin/[-\w.*]+(/[-\w.*]+)?, (allow|deny)$`)
	f.Fuzz(func(t *testing.T, spec []byte) {
		content, err := argocd.MirrorProject("berlin", rules, "own", argocd.Content{Spec: spec})
		if err != nil {
			return
		}
		var got struct {
			Destinations     []map[string]string
			SourceNamespaces []string
			Roles            []struct {
				Name             string
				Groups, Policies []string
			}
		}
		require.NoError(t, json.Unmarshal(content.Spec, &got))
		require.Equal(t, []string{"berlin"}, got.SourceNamespaces)
		for _, d := range got.Destinations {
			require.Equal(t, "berlin", d["name"])
			require.NotContains(t, d, "server")
		}
		for _, role := range got.Roles {
			require.NotContains(t, role.Name, "\n")
			require.False(t, slices.ContainsFunc(role.Groups, func(g string) bool { return strings.ContainsAny(g, ",\"\r\n\t") }))
			for _, policy := range role.Policies {
				require.Regexp(t, line, policy)
			}
		}
	})
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
		return argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: spec})
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
			_, err := argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: json.RawMessage(spec)})
			require.ErrorContains(t, err, "want a glob")
		})
	}
}

// Patterns are bounded for texts of some length, and no longer ones are shown to be matched with them.
func TestMirroredTextsAreNoLongerThanPatternsAreBoundedFor(t *testing.T) {
	t.Parallel()
	url := func(length int) string { return "https://x/" + strings.Repeat("a", length-len("https://x/")) }
	for name, c := range map[string]struct{ spec, refused string }{
		"namespace":       {`{"destination":{"namespace":"` + strings.Repeat("a", 63) + `"}}`, ""},
		"long namespace":  {`{"destination":{"namespace":"` + strings.Repeat("a", 64) + `"}}`, "has 64 characters: want at most 63"},
		"repository":      {`{"source":{"repoURL":"` + url(256) + `"},"sources":[{"ref":"a"},7]}`, ""},
		"long repository": {`{"source":{"repoURL":"` + url(257) + `"}}`, "has 257 characters: the hub shows applications of repositories"},
		"one of several":  {`{"sources":[{"repoURL":"` + url(20) + `"},{"repoURL":"` + url(2048) + `"}]}`, "has 2048 characters"},
		"dry source":      {`{"sourceHydrator":{"drySource":{"repoURL":"` + url(300) + `"}}}`, "has 300 characters"},
		"sync source":     {`{"sourceHydrator":{"syncSource":{"repoURL":"` + url(300) + `"}}}`, "has 300 characters"},
		"escaped":         {`{"source":{"repoURL":"` + strings.Repeat("ü", 42) + `"}}`, ""},
		"escaped to more": {`{"source":{"repoURL":"` + strings.Repeat("ü", 43) + `"}}`, "has 258 characters"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := argocd.MirrorDefinition("berlin", argocd.MirrorRules{}, argocd.Definition{Spec: json.RawMessage(c.spec)})
			if c.refused == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.refused)
		})
	}
	const stars = `*a*a*a*a*` // which a name of 63 bytes could have, and an Application's could not
	for spec, refused := range map[string]bool{
		`{"sourceRepos":["https://*.example.com/*/*-x"]}`:                                                 false,
		`{"sourceRepos":["` + stars + `"]}`:                                                               true,
		`{"syncWindows":[{"schedule":"* * * * *","duration":"1h","applications":["a-*-b-*-c-*"]}]}`:       false,
		`{"syncWindows":[{"schedule":"* * * * *","duration":"1h","applications":["` + stars[:8] + `"]}]}`: true,
		`{"syncWindows":[{"schedule":"* * * * *","duration":"1h","namespaces":["` + stars[:8] + `"]}]}`:   false,
	} {
		_, err := argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: json.RawMessage(spec)})
		require.Equal(t, refused, err != nil, "%s: %v", spec, err)
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
			_, err = argocd.MirrorProject("berlin", argocd.MirrorRules{}, "own", argocd.Content{Spec: spec})
			require.ErrorContains(t, err, "it takes too long to match all of them")
		})
	}
}

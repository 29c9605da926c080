package argocd_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// recipient is an agent with its own namespace on the hub.
func recipient() argocd.Recipient {
	return argocd.Recipient{Agent: "berlin", Server: "https://proxy:9090?agentName=berlin", Namespace: "berlin"}
}

// aProject is what is kept of a project with that spec.
func aProject(spec string) *argocd.Record {
	return argocd.ReduceObject(&argocd.Object{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: json.RawMessage(spec)}, nil)
}

// What a project says of destinations, and whether it is for the agent berlin then.
func TestProjectIsForAgentsInItsDestinations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		destinations string
		want         bool
	}{
		"by name":                             {`[{"name":"berlin","namespace":"*"}]`, true},
		"by a glob":                           {`[{"name":"b*","namespace":"*"}]`, true},
		"its server":                          {`[{"server":"https://proxy:9090?agentName=berlin","namespace":"*"}]`, true},
		"its name in a server of another":     {`[{"server":"https://old:1?agentName=berlin","namespace":"*"}]`, true},
		"its name in a server, by a glob":     {`[{"server":"https://old:1?agentName=b*","namespace":"*"}]`, true},
		"another's name in a server":          {`[{"server":"https://old:1?agentName=paris","namespace":"*"}]`, false},
		"a server that is no address":         {`[{"server":"?agentName=%zz","namespace":"*"}]`, false},
		"its name denied after":               {`[{"server":"*","namespace":"*"},{"name":"!b*","namespace":"*"}]`, false},
		"its name denied in one namespace":    {`[{"name":"!berlin","namespace":"prod"},{"name":"*","namespace":"*"}]`, false},
		"its server denied in one namespace":  {`[{"server":"!https://proxy:9090?agentName=berlin","namespace":"kube-system"},{"server":"*","namespace":"*"}]`, true},
		"its address denied in one namespace": {`[{"server":"!https://proxy:9090[?]*","namespace":"kube-system"},{"server":"*","namespace":"*"}]`, true},
		"its name in a server denied":         {`[{"server":"!https://old:1?agentName=b*","namespace":"*"},{"server":"*","namespace":"*"}]`, false},
		"another's name in a server denied":   {`[{"server":"!https://old:1?agentName=paris","namespace":"*"},{"server":"*","namespace":"*"}]`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project := aProject(`{"sourceNamespaces":["*"],"destinations":` + c.destinations + `}`)
			require.Equal(t, c.want, project.IsFor(recipient()))
			_, is := project.ForAgent(recipient())
			require.Equal(t, c.want, is)
		})
	}
}

// If the address of an agent's cluster is unknown, no rule can say whether it is denied.
func TestAgentWithoutAddressIsDeniedByAnyServerDenial(t *testing.T) {
	t.Parallel()
	v := recipient()
	v.Server = ""
	for destinations, want := range map[string]bool{
		`[{"server":"*","namespace":"*"}]`:                                                                                        true,
		`[{"name":"berlin","namespace":"*"}]`:                                                                                     true,
		`[{"server":"https://proxy*","namespace":"*"}]`:                                                                           false,
		`[{"name":"berlin","namespace":"*"},{"server":"!https://elsewhere","namespace":"*"}]`:                                     false,
		`[{"name":"berlin","namespace":"*"},{"server":"!https://elsewhere","namespace":"prod"}]`:                                  false,
		`[{"server":"!https://old?agentName=paris","namespace":"*"},{"server":"*","namespace":"*"},{"name":"x","namespace":"y"}]`: true,
	} {
		require.Equal(t, want, aProject(`{"sourceNamespaces":["*"],"destinations":`+destinations+`}`).IsFor(v), destinations)
	}
}

// As in Argo CD: globs, regular expressions between slashes, and no denials.
func TestProjectIsForItsSourceNamespaces(t *testing.T) {
	t.Parallel()
	for namespaces, want := range map[string]bool{
		`[]`: false, `null`: false, `[""]`: false, `["*"]`: true, `["berlin"]`: true, `["b*"]`: true, `["ber"]`: false, `["paris","berlin"]`: true,
		`["/^ber/"]`: true, `["/^er/"]`: false, `["/^ber(/","b*"]`: true, `["/^ber(/"]`: false, `["//"]`: false, `["["]`: false,
		`["!paris"]`: false, `["*","!berlin"]`: true,
	} {
		project := aProject(`{"sourceNamespaces":` + namespaces + `,"destinations":[{"name":"*","namespace":"*"}]}`)
		require.Equal(t, want, project.IsFor(recipient()), namespaces)
		everywhere := recipient()
		everywhere.Namespace = ""
		require.True(t, project.IsFor(everywhere), namespaces)
	}
}

func TestMalformedProjectIsForNoAgent(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{``, `null`, `7`, `"x"`, `[]`, `{`, `{"destinations":7}`, `{"destinations":[7]}`, `{"destinations":[{"name":7}]}`, `{"sourceNamespaces":"*"}`} {
		require.False(t, aProject(spec).IsFor(recipient()), spec)
		content, ok := aProject(spec).ForAgent(recipient())
		require.False(t, ok, spec)
		require.Zero(t, content, spec)
	}
}

func TestProjectForAgent(t *testing.T) {
	t.Parallel()
	const spec = `{
		"description":"ours","sourceRepos":["*"],"sourceNamespaces":["b*"],"roles":[{"name":"admin"}],"newField":{"n":1.50},
		"destinations":[
			{"name":"paris","namespace":"*"},
			{"name":"berlin","namespace":"prod-*"},
			{"server":"*","namespace":"!kube-system"},
			{"server":"!https://proxy:9090[?]*","namespace":"secret"}
		]}`
	object := &argocd.Object{
		ObjectMeta: metav1.ObjectMeta{
			Name: "team", Labels: map[string]string{"team": "blue", argocd.LabelIgnore: "false", "app.kubernetes.io/instance": "apps"}, Finalizers: []string{"resources-finalizer.argocd.argoproj.io"},
			Annotations: map[string]string{
				"example.com/a": "b", "notifications.argoproj.io/subscribe.x": "y", "argocd.argoproj.io/tracking-id": "apps:argoproj.io/AppProject:argocd/team",
				"kubectl.kubernetes.io/last-applied-configuration": "{}",
			},
		},
		Spec: json.RawMessage(spec),
	}
	project := argocd.ReduceObject(object, nil)
	content, ok := project.ForAgent(recipient())
	require.True(t, ok)
	require.Equal(t, map[string]string{"team": "blue"}, content.Labels)
	require.Equal(t, map[string]string{"notifications.argoproj.io/subscribe.x": "y"}, content.Annotations)
	const want = `{
		"description":"ours","sourceRepos":["*"],"newField":{"n":1.50},
		"destinations":[
			{"name":"in-cluster","server":"https://kubernetes.default.svc","namespace":"prod-*"},
			{"name":"in-cluster","server":"https://kubernetes.default.svc","namespace":"!kube-system"},
			{"server":"!https://kubernetes.default.svc","namespace":"secret"}
		]}`
	require.JSONEq(t, want, string(content.Spec))
	require.Contains(t, string(content.Spec), "1.50", "numbers stay as they are written")
	require.JSONEq(t, spec, string(object.Spec), "the original stays as it is")

	everywhere := recipient()
	everywhere.Namespace = ""
	content, ok = project.ForAgent(everywhere)
	require.True(t, ok)
	require.Contains(t, string(content.Spec), `"sourceNamespaces":["b*"]`, "applications stay in their namespaces")
}

// Of ten thousand agents nearly all have the same of a project.
func TestProjectIsEncodedOnceForAllAgents(t *testing.T) {
	project := aProject(`{"destinations":[{"name":"*","namespace":"*"},{"name":"paris","namespace":"kitchen"}],"sourceNamespaces":["*"],"roles":[{"name":"x"}]}`)
	encoded := func(agent string) []byte {
		to := argocd.Recipient{Agent: agent, Namespace: agent}
		content, ok := project.ForAgent(to)
		require.True(t, ok)
		want, version, err := content.Encode()
		require.NoError(t, err)
		payload, got, ok := project.EncodedForAgent(to)
		require.True(t, ok)
		require.Equal(t, string(want), string(payload))
		require.Equal(t, version, got)
		return payload
	}
	berlin, rome, paris := encoded("berlin"), encoded("rome"), encoded("paris")
	require.Same(t, &berlin[0], &rome[0])
	require.NotSame(t, &berlin[0], &paris[0])
	again, _, ok := project.EncodedBy(argocd.SharedProject)
	require.True(t, ok)
	more, _, _ := project.EncodedBy(argocd.SharedProject)
	require.Same(t, &again[0], &more[0])
	_, _, ok = aProject(`{}`).EncodedForAgent(argocd.Recipient{Agent: "berlin"})
	require.False(t, ok)
}

// A drifted object is looked at again and again.
func TestRuleIsAskedOnceWhatItLeaves(t *testing.T) {
	t.Parallel()
	for spec, left := range map[string]bool{`{"sourceRepos":["*"]}`: true, `{"roles":[{"name":"r"}],"sourceRepos":["*"]}`: false} {
		project, asked := aProject(spec), 0
		for range 3 {
			require.Equal(t, left, project.IsLeftBy(func(c argocd.Content) (argocd.Content, error) {
				asked++
				return argocd.HubsProject("", false)(c)
			}), spec)
		}
		require.Equal(t, 1, asked)
	}
}

package hostile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// ofLiar selects an Application of the autonomous liar's on the hub.
func ofLiar(name string) cluster.Selection {
	return cluster.Selection{Resource: apps(), Namespace: autonomousLiar, Name: name}
}

// mirrorLies are an autonomous agent's about its Applications and projects.
func mirrorLies() []lie {
	return []lie{
		{
			who: agent, about: "application", sends: "finalizers, an owner, `notifications.*`, `argocd-image-updater.*` and the agent's own annotations",
			happens: "shown without them",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				shareProject(t, s.fromAutonomous)
				requireDone(t, s.fromAutonomous.put(t, facets.Application, "lie-more", `{`+specText+`,"finalizers":["resources-finalizer.argocd.argoproj.io","example.com/stuck"],`+
					`"labels":{"app.kubernetes.io/instance":"other"},"annotations":{`+
					`"notifications.argoproj.io/subscribe.on-deployed.email":"x@example.com","argocd-image-updater.argoproj.io/image-list":"x",`+
					`"argocd.argoproj.io/refresh":"hard","argocd-agent.argoproj-labs.io/intent":"x","argocd.argoproj.io/principal-uid":"x"}}`))
				shown := get(t, s.lab.Hub, ofLiar("lie-more"))
				require.NotNil(t, shown)
				require.Empty(t, shown.GetFinalizers())
				require.Empty(t, shown.GetOwnerReferences())
				require.NotContains(t, shown.GetLabels(), "app.kubernetes.io/instance")
				for name, value := range shown.GetAnnotations() {
					require.NotContains(t, name, "notifications.argoproj.io")
					require.NotContains(t, name, "image-updater")
					require.NotEqual(t, "argocd.argoproj.io/refresh", name)
					require.NotEqual(t, "argocd-agent.argoproj-labs.io/intent", name)
					require.NotEqual(t, "x", value, "%s is the agent's word", name)
				}
			},
		},
		{
			who: agent, about: "application", sends: "a deletion in progress, with finalizers",
			happens: "shown without finalizers, or refused",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireDone(t, s.fromAutonomous.put(t, facets.Application, "lie-deleting", `{`+specText+`}`))
				requireRefusedOrDone(t, s.fromAutonomous.put(t, facets.Application, "lie-deleting",
					`{"deleting":true,"finalizers":["resources-finalizer.argocd.argoproj.io","example.com/stuck"]}`))
				if shown := get(t, s.lab.Hub, ofLiar("lie-deleting")); shown != nil {
					require.Empty(t, shown.GetFinalizers())
				}
			},
		},
		{
			who: agent, about: "application", sends: "destinations that are not its cluster: `in-cluster`, the hub's address, another agent's name",
			happens: "shown for the agent's own cluster",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for i, destination := range []string{
					`{"name":"in-cluster"}`, `{"server":"https://kubernetes.default.svc"}`, `{"name":"` + bystander + `"}`,
					`{"server":"https://example.com:6443?agentName=` + bystander + `"}`, `{"name":"x","Name":"in-cluster"}`,
				} {
					name := fmt.Sprintf("lie-destination-%d", i)
					ack := s.fromAutonomous.put(t, facets.Application, converge.Key(name),
						`{"spec":{"project":"default","source":{"repoURL":"https://example.com/x","path":"x"},"destination":`+destination+`}}`)
					shown := get(t, s.lab.Hub, ofLiar(name))
					if ack.Code == converge.Refused {
						require.Nil(t, shown)
						continue
					}
					requireDone(t, ack)
					to, _, err := unstructured.NestedMap(shown.Object, "spec", "destination")
					require.NoError(t, err)
					require.Equal(t, autonomousLiar, to["name"])
					require.NotContains(t, to, "server")
				}
			},
		},
		{
			who: agent, about: "application", sends: "the name of another agent's Application, with a namespace: `" + bystander + "/x`, `../" + bystander + "/x`",
			happens: "refused; nothing is made in another namespace",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for _, name := range []converge.Key{bystander + "/x", "../" + bystander + "/x", bystander + "%2fx", "argocd/x"} {
					requireRefused(t, s.fromAutonomous.put(t, facets.Application, name, `{`+specText+`}`))
				}
				for _, namespace := range []string{bystander, "argocd"} {
					all, err := s.lab.Hub.List(t.Context(), cluster.Selection{Resource: apps(), Namespace: namespace})
					require.NoError(t, err)
					require.Empty(t, all)
				}
			},
		},
		{
			who: agent, about: "application", sends: "a project that on the hub is the hub's own, as `" + autonomousLiar + "-hubs`",
			happens: "refused: a project with that name is not the agent's",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				create(t, s.lab.Hub, `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"`+autonomousLiar+`-hubs"},"spec":{"description":"the hub's"}}`)
				requireRefusedSoon(t, func() converge.Ack {
					return s.fromAutonomous.put(t, facets.Application, "lie-project", strings.ReplaceAll(`{`+specText+`}`, "default", "hubs"))
				})
				_, err := s.lab.Hub.Wait(t.Context(), ofLiar("lie-project"), func(shown *unstructured.Unstructured) bool { return shown == nil })
				require.NoError(t, err)
				before := get(t, s.lab.Hub, in(projects(), autonomousLiar+"-hubs"))
				requireRefusedSoon(t, func() converge.Ack {
					return s.fromAutonomous.put(t, facets.AppProject, "hubs", `{"spec":{"sourceRepos":["*"]}}`)
				})
				requireRefusedOrDone(t, s.fromAutonomous.remove(t, facets.AppProject, "hubs", ""))
				require.Equal(t, before, get(t, s.lab.Hub, in(projects(), autonomousLiar+"-hubs")))
			},
		},
		{
			who: agent, about: "appproject", sends: "roles with groups, `*` as a resource, and line breaks in names and policies",
			happens: "shown without roles, unless the hub opts in by `--mirror-project-roles`",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefusedOrDone(t, s.fromAutonomous.put(t, facets.AppProject, "lie-roles", `{"spec":{"roles":[`+
					`{"name":"r\np, mallory, *, *, *, allow","groups":["everyone\np, mallory, *, *, *, allow"],`+
					`"policies":["p, proj:lie-roles:r, *, *, */*, allow","p, proj:lie-roles:r, clusters, create, lie-roles/*, allow"]}]}}`))
				if shown := get(t, s.lab.Hub, in(projects(), autonomousLiar+"-lie-roles")); shown != nil {
					roles, _, err := unstructured.NestedSlice(shown.Object, "spec", "roles")
					require.NoError(t, err)
					require.Empty(t, roles)
				}
			},
		},
		{
			who: agent, about: "appproject", sends: "destinations in other clusters, `in-cluster` and namespaces of others as sources",
			happens: "shown for the agent's cluster and its own namespace only",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireDone(t, s.fromAutonomous.put(t, facets.AppProject, "lie-destinations", `{"spec":{"sourceNamespaces":["*","argocd"],`+
					`"destinations":[{"server":"https://kubernetes.default.svc","namespace":"*"},{"name":"`+bystander+`","namespace":"*"}]}}`))
				shown := get(t, s.lab.Hub, in(projects(), autonomousLiar+"-lie-destinations"))
				require.NotNil(t, shown)
				sources, _, err := unstructured.NestedStringSlice(shown.Object, "spec", "sourceNamespaces")
				require.NoError(t, err)
				require.Equal(t, []string{autonomousLiar}, sources)
				destinations, _, err := unstructured.NestedSlice(shown.Object, "spec", "destinations")
				require.NoError(t, err)
				for _, d := range destinations {
					d, ok := d.(map[string]any)
					require.True(t, ok)
					require.Equal(t, autonomousLiar, d["name"])
					require.NotContains(t, d, "server")
				}
			},
		},
		{
			who: agent, about: "appproject", sends: "a glob that would take years to match: sixty times `{,?}`",
			happens: "refused within a bounded number of steps",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				requireRefused(t, s.fromAutonomous.put(t, facets.AppProject, "lie-glob",
					`{"spec":{"destinations":[{"server":"`+strings.Repeat("{,?}", 60)+`[X]","namespace":"*"}]}}`))
				requireNone(t, s.lab.Hub, in(projects(), autonomousLiar+"-lie-glob"))
			},
		},
		{
			who: agent, about: "repository, gpg-keys, application-intent", sends: "objects of facets of which the hub is the source, or that its mode does not have",
			happens: "refused",
			try: func(t *testing.T, s *stage) {
				t.Helper()
				for _, facet := range []converge.Facet{facets.Repository, facets.RepoCreds, facets.GPGKeys, facets.Intent} {
					requireRefused(t, s.fromAutonomous.put(t, facet, "lie", `{"data":{}}`))
				}
				for _, facet := range []converge.Facet{facets.Application, facets.AppProject, facets.GPGKeys, facets.Intent} {
					requireRefused(t, s.fromManaged.put(t, facet, "lie", `{`+specText+`}`))
				}
				requireNone(t, s.lab.Hub, cluster.Selection{Resource: apps(), Namespace: managedLiar, Name: "lie"})
				requireNone(t, s.lab.Hub, in(secrets(), "lie"))
				requireNone(t, s.lab.Hub, in(configMaps(), "lie"))
			},
		},
	}
}

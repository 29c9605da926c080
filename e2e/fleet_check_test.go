package e2e_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// keysName is what Argo CD calls the ConfigMap of GPG keys.
const keysName = "argocd-gpg-keys-cm"

// damage is what makes one key of a facet unequal.
type damage struct {
	agent string
	found string // the facet and the key
	side  side
	by    change // nil is its deletion
}

// requireSeen has things become unequal while nobody is there to mend them, and requires that just these are found: a comparison
// that finds nothing would prove nothing.
func (f *wholeFleet) requireSeen(t *testing.T) {
	t.Helper()
	for _, a := range f.agents {
		stopped(t, a.Stop)
	}
	for _, p := range f.principals {
		stopped(t, p.Stop)
	}
	all := f.damages(t)
	for _, d := range all {
		if d.by == nil {
			d.side.delete(t)
		} else {
			d.side.edit(t, d.by)
		}
	}
	for _, pair := range f.pairs {
		var want, got []string
		for _, d := range all {
			if d.agent == pair.Agent {
				want = append(want, d.found)
			}
		}
		found, err := pair.Check(t.Context())
		require.NoError(t, err)
		for _, d := range found {
			got = append(got, string(d.Facet)+" "+string(d.Key))
		}
		slices.Sort(want)
		slices.Sort(got)
		require.Equal(t, want, got, "%s: %v", pair.Agent, found)
	}
	for _, p := range f.principals {
		start(t, p.Start)
	}
	for _, a := range f.agents {
		start(t, a.Start)
	}
}

// damages are some to each facet of agents of each kind.
func (f *wholeFleet) damages(t *testing.T) []damage {
	t.Helper()
	hub, managed, placed := f.lab.Hub, f.lab.Spoke("managed"), f.lab.Spoke("placed")
	app := func(c *lab.Cluster, namespace, name string) side { return side{c, argocd.Named(namespace, name)} }
	refresh := annotate("argocd.argoproj.io/refresh", "normal/mine")
	health := func(o *unstructured.Unstructured) {
		set(o, map[string]any{"health": map[string]any{"status": "Degraded"}}, "status")
	}
	repository, credentials := f.secret(t, "repository"), f.secret(t, "repo-creds")
	return []damage{
		{"managed", "application app-0", app(managed, lab.Namespace, "app-0"), spec("wrong", "source", "targetRevision")},
		{"managed", "application app-1", app(managed, lab.Namespace, "app-1"), nil},
		{"managed", "application app-2", app(managed, lab.Namespace, "app-2"), wipeAnnotations},
		{"managed", "application-intent app-3", app(hub, "managed", "app-3"), refresh},
		{"managed", "application-status app-4", app(hub, "managed", "app-4"), health},
		{"managed", "appproject team-0", project(managed, lab.Namespace, "team-0"), nil},
		{"managed", "appproject team-1", project(managed, lab.Namespace, "team-1"), func(o *unstructured.Unstructured) {
			destinations, _, err := unstructured.NestedSlice(o.Object, "spec", "destinations")
			require.NoError(t, err)
			require.Len(t, destinations, 2, "the hub's, and the denial of the agent's namespace")
			set(o, destinations[:1], "spec", "destinations")
		}},
		{"managed", "gpg-keys " + keysName, core(managed, "configmaps", lab.Namespace, keysName), func(o *unstructured.Unstructured) {
			set(o, map[string]any{"wrong": "key"}, "data")
		}},
		{"managed", "repository " + repository, core(managed, "secrets", lab.Namespace, repository), label(secretType, "")},
		{"managed", "repo-creds " + credentials, core(managed, "secrets", lab.Namespace, credentials), func(o *unstructured.Unstructured) {
			set(o, "d3Jvbmc=", "data", "password")
		}},
		{"placed", "application placed-0", app(placed, lab.Namespace, "placed-0"), spec("wrong", "source", "targetRevision")},
		{"placed", "application team-x/app-0", app(placed, "team-x", "app-0"), nil},
		{"free", "application app-0", app(hub, "free", "app-0"), spec("in-cluster", "destination", "name")},
		{"free", "application app-1", app(hub, "free", "app-1"), nil},
		{"free", "application app-2", app(hub, "free", "app-2"), wipeAnnotations},
		{"free", "application-intent app-3", app(hub, "free", "app-3"), refresh},
		{"free", "application-status app-4", app(hub, "free", "app-4"), health},
		{"free", "appproject own-0", project(hub, lab.Namespace, "free-own-0"), spec([]any{"wrong"}, "sourceNamespaces")},
	}
}

// secret returns the name of a Secret of the hub's that is of a type.
func (f *wholeFleet) secret(t *testing.T, use string) string {
	t.Helper()
	all, err := f.lab.Hub.Of(core(f.lab.Hub, "secrets", lab.Namespace, "").selection).List(t.Context(), metav1.ListOptions{LabelSelector: secretType + "=" + use})
	require.NoError(t, err)
	require.NotEmpty(t, all.Items)
	return all.Items[0].GetName()
}

// requireNothingAsked waits until nothing is left of what people asked for, on either side: all of it is done.
func (f *wholeFleet) requireNothingAsked(t *testing.T) {
	t.Helper()
	clusters := []*lab.Cluster{f.lab.Hub}
	for name := range f.agents {
		clusters = append(clusters, f.lab.Spoke(name))
	}
	over := func(object *unstructured.Unstructured) bool {
		_, refreshing := object.GetAnnotations()["argocd.argoproj.io/refresh"]
		return idle(object) && !refreshing && object.GetAnnotations()[ownPrefix+"intent"] == ""
	}
	for _, c := range clusters {
		all, err := c.Of(argocd.All("")).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for i := range all.Items {
			if object := &all.Items[i]; !over(object) {
				side{c, argocd.Named(object.GetNamespace(), object.GetName())}.becomes(t, over)
			}
		}
	}
}

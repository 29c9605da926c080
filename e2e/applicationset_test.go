package e2e_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// applicationSet makes an Application for each cluster with the label fleet=NAME.
const applicationSet = `apiVersion: argoproj.io/v1alpha1
kind: ApplicationSet
metadata: {name: %[1]s, namespace: argocd}
spec:
  generators: [{clusters: {selector: {matchLabels: {fleet: %[1]s}}}}]
  syncPolicy: {preserveResourcesOnDeletion: true}
  template:
    metadata: {name: "%[1]s-{{name}}"}
    spec:
      project: default
      source: {repoURL: %[2]q, path: config, targetRevision: main}
      destination: {name: "{{name}}", namespace: default}
`

func TestApplicationSetGeneratesApplicationsForManyAgents(t *testing.T) {
	t.Parallel()
	controller, err := shared.Hub.ArgoCD.StartApplicationSets(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { stopped(t, controller.Stop) })
	f := newFederation(t)
	set := unique("generated")
	var sites []*site
	for i := range 3 {
		s := f.newSite(t, fmt.Sprint("member-", i), lab.AgentOptions{Spoke: []string{"a", "b"}[i%2]})
		secret(s).edit(t, label("fleet", set))
		sites = append(sites, s)
	}
	kind := schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applicationsets"}
	objects, err := cluster.Parse(fmt.Appendf(nil, applicationSet, set, shared.Git.URL))
	require.NoError(t, err)
	itself := side{shared.Hub, cluster.Selection{Resource: kind, Namespace: lab.Namespace, Name: set}}
	create(t, itself.cluster, itself.selection, objects[0])

	generated := func(s *site) *twin {
		name := set + "-" + s.name
		return &twin{hub: side{shared.Hub, argocd.Named(lab.Namespace, name)}, spoke: side{s.spoke, argocd.Named(s.name, name)}}
	}
	for _, s := range sites {
		app := generated(s)
		app.hub.becomes(t, func(object *unstructured.Unstructured) bool { return len(object.GetOwnerReferences()) == 1 })
		arrived := app.arrives(t, has("in-cluster", "spec", "destination", "name"))
		require.Empty(t, arrived.GetOwnerReferences(), "its owner is not on the spoke")
	}

	// The template changes all of them, and a cluster that is no longer selected loses its own.
	itself.edit(t, func(object *unstructured.Unstructured) {
		require.NoError(t, unstructured.SetNestedField(object.Object, "v2", "spec", "template", "spec", "source", "targetRevision"))
	})
	for _, s := range sites {
		generated(s).spoke.becomes(t, has("v2", "spec", "source", "targetRevision"))
	}
	for i, s := range sites {
		secret(s).edit(t, label("fleet", ""))
		generated(s).hub.vanishes(t)
		generated(s).spoke.vanishes(t)
		for _, other := range sites[i+1:] {
			generated(other).spoke.get(t)
		}
	}
}

// secret is a site's cluster Secret on the hub.
func secret(s *site) side { return core(shared.Hub, "secrets", lab.Namespace, "cluster-"+s.name) }

package e2e_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// A project may say by the address of a cluster whom it is for. The agent's is in the cluster Secret.
func TestProjectDestinationByClusterAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t, "addressed", lab.AgentOptions{}).connected(t)
	name := unique("by-address")
	content := projectFor(s.name)
	content["spec"].(map[string]any)["destinations"] = []any{map[string]any{"server": "https://*=" + s.name, "namespace": "*"}}
	project(shared.Hub, lab.Namespace, name).declare(t, "AppProject", content)
	core(shared.Hub, "secrets", lab.Namespace, name).declare(t, "Secret", repository(name), label(secretType, "repository"))
	there, credentials := project(s.spoke, s.name, name), core(s.spoke, "secrets", s.name, name)
	there.becomes(t)
	credentials.becomes(t)

	address := text(secret(s).get(t), "data", "server")
	move := func(to string) {
		secret(s).edit(t, func(object *unstructured.Unstructured) { set(object, to, "data", "server") })
	}
	move(inBase64("https://elsewhere.example.com"))
	there.vanishes(t)
	credentials.vanishes(t)
	move(address)
	there.becomes(t)
	credentials.becomes(t)

	secret(s).delete(t)
	there.vanishes(t)
	credentials.vanishes(t)
	require.NoError(t, shared.RegisterAgent(t.Context(), s.name))
	there.becomes(t)
	credentials.becomes(t)
}

// It is the one that Applications are in which name no other, so their spoke must have it.
func TestDefaultProjectReachesManagedAgents(t *testing.T) {
	t.Parallel()
	s := newSite(t, "defaulting", lab.AgentOptions{}).connected(t)
	hub := project(shared.Hub, lab.Namespace, "default").get(t)
	project(s.spoke, s.name, "default").becomes(t, annotated(sourceUID, string(hub.GetUID())))
}

// Projects of autonomous agents are all in one namespace of the hub, by names with the agent's before them. Two can be the
// same, and one can be too long.
func TestRefusedAutonomousProjectsAreReported(t *testing.T) {
	t.Parallel()
	first := newSite(t, "crew", lab.AgentOptions{Mode: "autonomous"}).connected(t)
	second := startSite(t, first.name+"-x", lab.AgentOptions{Mode: "autonomous"}).connected(t)
	project(first.spoke, first.name, "x-shop").declare(t, "AppProject", projectFor("*"))
	says(t, first.agent, "Hub refused object", "kind=AppProject name=x-shop", "such names are for projects of agent", second.name)
	shown := project(shared.Hub, lab.Namespace, first.name+"-x-shop")
	project(second.spoke, second.name, "shop").declare(t, "AppProject", projectFor("*"))
	before := shown.becomes(t)
	require.Equal(t, second.name, before.GetAnnotations()["argocd-agent.argoproj-labs.io/agent"])
	shown.remains(t, before)

	long := strings.Repeat("x", 253-len(second.name))
	project(second.spoke, second.name, long).declare(t, "AppProject", projectFor("*"))
	says(t, second.agent, "longer than 253 characters: give it a shorter name")
}

package facets_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// replicasOf are all replicas that a peer may send to, on either side, by the side and the facet.
func replicasOf(t *testing.T) (replicas map[string]converge.Replica, keys map[string]converge.Key, writes func() []string) {
	t.Helper()
	managed, autonomous := newPair(t, facets.Managed), newPair(t, facets.Autonomous)
	record(t, managed.hub.Applications, managed.hubAPI.put(onHub()))
	record(t, autonomous.spoke.Applications, autonomous.spokeAPI.put(onSpoke()))
	replicas, keys = make(map[string]converge.Replica), make(map[string]converge.Key)
	for side, share := range map[string]facets.Share{
		"managed spoke ": managed.there, "hub of managed ": managed.here, "autonomous spoke ": autonomous.there, "hub of autonomous ": autonomous.here,
	} {
		for f, config := range share.Replicas {
			name := side + string(f)
			replicas[name], keys[name] = config.Replica, "guestbook"
			if f == facets.GPGKeys {
				keys[name] = argocd.KeysConfigMap
			}
		}
	}
	return replicas, keys, func() []string {
		return append(append(managed.hubAPI.takeWrites(), managed.spokeAPI.takeWrites()...), append(autonomous.hubAPI.takeWrites(), autonomous.spokeAPI.takeWrites()...)...)
	}
}

// Decoders differ in what they read of such a payload, so no facet takes it, on neither side.
func TestAmbiguousPayloadIsRefusedByEveryFacet(t *testing.T) {
	t.Parallel()
	replicas, keys, writes := replicasOf(t)
	require.Len(t, replicas, 11)
	for what, payload := range map[string]string{
		"a field twice":                `{"labels":{"argocd.argoproj.io/secret-type":"repository"},"spec":{},"spec":{}}`,
		"a field twice, and escaped":   `{"status":{},"\u0073tatus":{}}`,
		"a key twice in a spec":        `{"spec":{"destination":{"namespace":"a","namespace":"b"}}}`,
		"twice in an operation":        `{"operation":{"sync":{},"info":[{"name":"a","n\u0061me":"argocd-agent.argoproj-labs.io\u002fintent"}]}}`,
		"twice in data":                `{"labels":{"argocd.argoproj.io/secret-type":"repository"},"data":{"a":"eA==","a":"eQ=="}}`,
		"twice in a field of nobody's": `{"newer":{"a":1,"a":2}}`,
		"something after its end":      `{"labels":{"argocd.argoproj.io/secret-type":"repository"}} {}`,
		"too much nesting":             `{"spec":{"source":{"helm":{"valuesObject":` + strings.Repeat(`{"a":`, 256) + `1` + strings.Repeat(`}`, 256) + `}}}}`,
	} {
		for name, replica := range replicas {
			_, err := replica.Apply(t.Context(), keys[name], told(payload))
			require.ErrorIs(t, err, converge.ErrRefused, "%s: %s", name, what)
		}
	}
	require.Empty(t, writes())
}

// A field by another case is none of ours, as it is none to the API server: it says nothing, wherever it stands.
func TestFieldsByAnotherCaseSayNothing(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	require.NoError(t, p.tell(facets.Application, "guestbook", `{"Deleting":true,"Finalizers":["`+foreground+`"],"spec":{"destination":{"namespace":"a"}}}`))
	is := p.spokeAPI.get("guestbook")
	require.Nil(t, is.DeletionTimestamp)
	require.Empty(t, is.Finalizers)
	require.NoError(t, p.tell(facets.AppProject, "team", `{"Labels":{"a":"b"},"spec":{}}`))
	require.Empty(t, p.spokeAPI.object("AppProject", "team").Labels)

	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	payload := `{"status":{"Conditions":[{"type":"AgentError","message":"x"}],"OperationState":{"phase":"Terminating"},"sync":{"status":"Synced"}}}`
	object := told(payload)
	object.UID = "on-hub"
	_, err := p.here.Replicas[facets.Status].Apply(t.Context(), "guestbook", object)
	require.NoError(t, err)
	app, ok := p.here.Sources[facets.Intent].Project("guestbook")
	require.False(t, ok, "%s", app.Payload)
}

// A condition of ours in an agent's status would speak in the principal's name.
func TestConditionsInThePrincipalsNameAreDropped(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	object := told(`{"status":{"conditions":[{"type":"Agent\u0045rror","message":"Mapping by namespace: run this"},{"type":"SyncError","message":"theirs"}]}}`)
	object.UID = "on-hub"
	_, err := p.here.Replicas[facets.Status].Apply(t.Context(), "guestbook", object)
	require.NoError(t, err)
	status := string(p.hubAPI.get("guestbook").Status)
	require.Contains(t, status, "theirs")
	require.NotContains(t, status, "run this")

	object = told(`{"status":{"conditions":[{"type":"AgentHealt\u0068","message":"{\"status\":\"Healthy\"}"}],"health":{"status":"Degraded"}}}`)
	object.UID = "on-hub"
	_, err = p.here.Replicas[facets.Status].Apply(t.Context(), "guestbook", object)
	require.NoError(t, err)
	require.NotContains(t, string(p.hubAPI.get("guestbook").Status), "AgentHealth")
}

// By a role or by source namespaces a hub would give rights to the spoke's own applications.
func TestHubsProjectGrantsNothingOnTheSpoke(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	require.NoError(t, p.tell(facets.AppProject, "team", `{"spec":{"sourceNamespaces":["*"],"sourceRepos":["*"],`+
		`"roles":[{"name":"r","groups":["everyone\np, mallory, *, *, *, allow"],"policies":["p, proj:team:r, applications, *, team/*, allow"]}]}}`))
	require.JSONEq(t, `{"sourceRepos":["*"]}`, string(p.spokeAPI.object("AppProject", "team").Spec))
}

// What a newer release of Argo CD has in its objects survives.
func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	require.NoError(t, p.tell(facets.Application, "guestbook", `{"newer":1,"spec":{"destination":{"namespace":"a"},"newField":{"A":1.50,"a":2},"project":"default"}}`))
	require.Contains(t, string(p.spokeAPI.get("guestbook").Spec), `"newField":{"A":1.50,"a":2}`)
	require.NoError(t, p.tell(facets.AppProject, "team", `{"spec":{"newField":{"A":1.50,"a":2}}}`))
	require.Contains(t, string(p.spokeAPI.object("AppProject", "team").Spec), `"newField":{"A":1.50,"a":2}`)
}

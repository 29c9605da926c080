package facets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// A Secret whose label is gone exists, but no watch shows it.
func TestSecretThatLostItsLabelIsPatched(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	p.onHub("Secret", aSecret("repo", "repository", "team"))
	there := aSecret("repo", "repository", "team")
	there.Labels, there.Annotations = nil, map[string]string{argocd.AnnotationSourceUID: "hub-repo"}
	fixed := there
	fixed.Name, fixed.Immutable, fixed.Data = "fixed", true, map[string]string{"password": "b2xk"}
	fixed.Annotations = map[string]string{argocd.AnnotationSourceUID: "hub-fixed"}
	p.spokeAPI.putObject("Secret", fixed)
	p.onHub("Secret", aSecret("fixed", "repository", "team"))
	p.spokeAPI.putObject("Secret", there)
	p.run(p.spoke.Cluster)
	require.Zero(t, p.there.Replicas[facets.Repository].Held("repo"))
	require.NoError(t, p.send(facets.Repository, "repo"))
	require.Equal(t, "repository", p.spokeAPI.object("Secret", "repo").Labels[argocd.LabelSecretType])

	require.NoError(t, p.send(facets.Repository, "fixed"))
	require.False(t, p.spokeAPI.object("Secret", "fixed").Immutable, "it is another one")

	there.Name, there.Annotations = "own", nil
	p.spokeAPI.putObject("Secret", there)
	p.onHub("Secret", aSecret("own", "repository", "team"))
	require.ErrorIs(t, p.send(facets.Repository, "own"), converge.ErrRefused)
	require.Empty(t, p.spokeAPI.object("Secret", "own").Labels)
}

// What is of another type is no repository's, on neither side, whatever its annotations say.
func TestSecretOfAnotherTypeIsSpared(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	p.onHub("Secret", aSecret("repo", "repository", "team"))
	require.NoError(t, p.send(facets.Repository, "repo"))
	replica := *p.spokeAPI.object("Secret", "repo")
	again := aSecret("repo", "repository", "team")
	again.UID, again.Type = "hub-again", "kubernetes.io/service-account-token"
	p.onHub("Secret", again)
	err := p.send(facets.Repository, "repo")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, `it is of the type "kubernetes.io/service-account-token", and only Secrets of the type Opaque are shared`)
	require.Equal(t, &replica, p.spokeAPI.object("Secret", "repo"), "the credential goes on working")

	for name, foreign := range map[string]func(*argocd.Object){
		"type": func(o *argocd.Object) { o.Type = "helm.sh/release.v1" },
		"use":  func(o *argocd.Object) { o.Labels = map[string]string{argocd.LabelSecretType: argocd.SecretTypeCluster} },
	} {
		there := aSecret(name, "repository", "other")
		there.Annotations = map[string]string{argocd.AnnotationSourceUID: "hub-" + name}
		foreign(&there)
		before := p.onSpoke("Secret", there)
		p.onHub("Secret", aSecret(name, "repository", "team"))
		require.ErrorContains(t, p.send(facets.Repository, converge.Key(name)), "which is no repository's: rename or delete one of the two")
		_, err := p.there.Replicas[facets.Repository].Remove(t.Context(), converge.Key(name), "")
		require.NoError(t, err)
		require.Equal(t, before, p.spokeAPI.object("Secret", name))
	}
}

// A password that was changed on the hub, because it leaked or ran out, arrives whatever somebody did to the replica object.
func TestImmutableSecretIsRecreated(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	p.onHub("Secret", aSecret("repo", "repository", "team"))
	require.NoError(t, p.send(facets.Repository, "repo"))
	replica := *p.spokeAPI.object("Secret", "repo")
	replica.Immutable = true
	p.onSpoke("Secret", replica)

	labelled := aSecret("repo", "repository", "team")
	labelled.Labels["team"] = "blue"
	p.onHub("Secret", labelled)
	require.NoError(t, p.send(facets.Repository, "repo"))
	require.Equal(t, replica.UID, p.spokeAPI.object("Secret", "repo").UID, "labels may be changed")

	rotated := aSecret("repo", "repository", "team")
	rotated.Data["password"] = "cm90YXRlZA=="
	p.onHub("Secret", rotated)
	require.NoError(t, p.send(facets.Repository, "repo"))
	is := p.spokeAPI.object("Secret", "repo")
	require.Equal(t, rotated.Data, is.Data)
	require.False(t, is.Immutable)

	own := aSecret("own", "repository", "theirs")
	own.Immutable, own.UID = true, "on-spoke"
	before := p.onSpoke("Secret", own)
	p.onHub("Secret", aSecret("own", "repository", "team"))
	require.ErrorIs(t, p.send(facets.Repository, "own"), converge.ErrRefused)
	require.Equal(t, before, p.spokeAPI.object("Secret", "own"), "it is no replica object")
}

// What a Secret is used for decides about its facet, and both facets get a change at once, in any order.
func TestSecretOfAnotherUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]converge.Facet{
		"the new use first": {facets.RepoCreds, facets.Repository}, "the old use first": {facets.Repository, facets.RepoCreds},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed)
			p.onHub("AppProject", teamProject("team", "berlin"))
			p.onHub("Secret", aSecret("repo", "repository", "team"))
			require.NoError(t, p.send(facets.Repository, "repo"))
			require.NoError(t, p.send(facets.RepoCreds, "repo"))
			require.NotNil(t, p.spokeAPI.object("Secret", "repo"))

			p.onHub("Secret", aSecret("repo", "repo-creds", "team"))
			require.False(t, p.isOffered(facets.Repository, "repo"))
			for _, f := range order {
				require.NoError(t, p.send(f, "repo"))
			}
			require.Equal(t, "repo-creds", p.spokeAPI.object("Secret", "repo").Labels[argocd.LabelSecretType])
			require.Zero(t, p.there.Replicas[facets.Repository].Held("repo"))
			require.NotZero(t, p.there.Replicas[facets.RepoCreds].Held("repo"))
		})
	}
}

// A credential that no longer belongs on a spoke is removed from it, also if somebody wiped what says that it is a replica object.
func TestReplicaWithoutAnnotationsIsDeleted(t *testing.T) {
	t.Parallel()
	for name, wiped := range map[string]bool{"with": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed)
			p.onHub("AppProject", teamProject("team", "berlin"))
			p.onHub("Secret", aSecret("repo", "repository", "team"))
			require.NoError(t, p.send(facets.Repository, "repo"))
			if wiped {
				changed := *p.spokeAPI.object("Secret", "repo")
				changed.Annotations = nil
				p.onSpoke("Secret", changed)
			}
			replica := p.there.Replicas[facets.Repository]
			_, err := replica.Remove(t.Context(), "repo", "of-another")
			require.NoError(t, err)
			require.NotNil(t, p.spokeAPI.object("Secret", "repo"), "it came from another")
			held, err := replica.Remove(t.Context(), "repo", "hub-repo")
			require.NoError(t, err)
			require.Zero(t, held)
			require.Nil(t, p.spokeAPI.object("Secret", "repo"))

			own := aSecret("repo", "repository", "team")
			own.UID = "made-here"
			p.onSpoke("Secret", own)
			_, err = replica.Remove(t.Context(), "repo", "")
			require.NoError(t, err)
			require.NotNil(t, p.spokeAPI.object("Secret", "repo"), "it is no replica object")
		})
	}
}

// Secrets are never sent to an agent that they are not for.
func TestCredentialsAreOnlyForAgentsOfTheirProjects(t *testing.T) {
	t.Parallel()
	notBase64 := aSecret("repo", "repository", "team")
	notBase64.Data["project"] = "team"
	for name, c := range map[string]struct {
		project argocd.Object
		secret  argocd.Object
		offered bool
	}{
		"of its project":                 {teamProject("team", "berlin"), aSecret("repo", "repository", "team"), true},
		"credentials of its project":     {teamProject("team", "berlin"), aSecret("repo", "repo-creds", "team"), true},
		"of another's project":           {teamProject("team", "paris"), aSecret("repo", "repository", "team"), false},
		"of no project":                  {teamProject("team", "berlin"), aSecret("repo", "repository", ""), false},
		"of a project that is not there": {teamProject("team", "berlin"), aSecret("repo", "repository", "other"), false},
		"of an unknown type":             {teamProject("team", "berlin"), aSecret("repo", "repositroy", "team"), false},
		"of a cluster":                   {teamProject("team", "berlin"), aSecret("repo", "cluster", "team"), false},
		"of a project that is no text":   {teamProject("team", "berlin"), notBase64, false},
		"of a project that is ignored":   {ignored(teamProject("team", "berlin")), aSecret("repo", "repository", "team"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed)
			p.onHub("AppProject", c.project)
			p.onHub("Secret", c.secret)
			use := map[string]converge.Facet{"repo-creds": facets.RepoCreds}[c.secret.Labels[argocd.LabelSecretType]]
			other := facets.Repository
			if use == "" {
				use, other = facets.Repository, facets.RepoCreds
			}
			require.Equal(t, c.offered, p.isOffered(use, "repo"))
			require.False(t, p.isOffered(other, "repo"))
			for _, agent := range []string{"paris", "rome"} {
				_, ok := p.hub.Share(agent, facets.Managed).Sources[use].Project("repo")
				require.Equal(t, name == "of another's project" && agent == "paris", ok, agent)
			}
			require.NotContains(t, p.hub.Share("berlin", facets.Autonomous).Sources, use)
		})
	}
}

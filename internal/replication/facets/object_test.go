package facets_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// An object that has the name of a replica object is adopted or left alone, by its kind.
func TestExistingObjectIsAdoptedOrRefusedByKind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind    string
		facet   converge.Facet
		there   argocd.Object
		source  argocd.Object
		refused bool
	}{
		"a project":                 {"AppProject", facets.AppProject, teamProject("team", "x"), teamProject("team", "berlin"), false},
		"a project that is ignored": {"AppProject", facets.AppProject, ignored(teamProject("team", "x")), teamProject("team", "berlin"), true},
		"a Secret":                  {"Secret", facets.Repository, aSecret("repo", "repository", "other"), aSecret("repo", "repository", "team"), true},
		"a Secret that is the same": {"Secret", facets.Repository, aSecret("repo", "repository", "team"), aSecret("repo", "repository", "team"), false},
		"keys":                      {"ConfigMap", facets.GPGKeys, keys(map[string]string{"old": "key"}), keys(map[string]string{"new": "key"}), false},
		"keys that are ignored":     {"ConfigMap", facets.GPGKeys, ignored(keys(nil)), keys(map[string]string{"new": "key"}), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed)
			p.onHub("AppProject", teamProject("team", "berlin"))
			there := c.there
			there.UID = "on-spoke"
			before := p.onSpoke(c.kind, there)
			p.onHub(c.kind, c.source)
			err := p.send(c.facet, converge.Key(there.Name))
			is := p.spokeAPI.object(c.kind, there.Name)
			if c.refused {
				require.ErrorIs(t, err, converge.ErrRefused)
				require.ErrorContains(t, err, `there is `+c.kind+` "`+there.Name+`" already, which is no replica object: rename or delete one of the two`)
				require.Equal(t, before, is)
				require.Zero(t, p.there.Replicas[c.facet].Held(converge.Key(there.Name)))
				return
			}
			require.NoError(t, err)
			require.Equal(t, before.UID, is.UID)
			require.Equal(t, c.source.Data, is.Data)
			require.Equal(t, string(c.source.UID), is.Annotations[argocd.AnnotationSourceUID])
			p.spokeAPI.takeWrites()
			require.NoError(t, p.send(c.facet, converge.Key(there.Name)))
			require.Empty(t, p.spokeAPI.takeWrites(), "what is held is not written again")
		})
	}
}

func ignored(o argocd.Object) argocd.Object {
	o.Labels = map[string]string{argocd.LabelIgnore: "true"}
	return o
}

func keys(data map[string]string) argocd.Object {
	return argocd.Object{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: argocd.KeysConfigMap, UID: "hub-keys"}, Data: data}
}

// A replica object stays one whatever users do to it, and is repaired.
func TestLocalChangesOfReplicaAreReverted(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*argocd.Object){
		"its data":                   func(o *argocd.Object) { o.Data["password"] = "eA==" },
		"its annotations are wiped":  func(o *argocd.Object) { o.Annotations = nil },
		"its labels are wiped":       func(o *argocd.Object) { o.Labels = nil },
		"another use":                func(o *argocd.Object) { o.Labels = map[string]string{argocd.LabelSecretType: "other"} },
		"it is to be ignored":        func(o *argocd.Object) { o.Labels[argocd.LabelIgnore] = "true" },
		"annotations beside its own": func(o *argocd.Object) { o.Annotations["mine"] = "yes" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed)
			p.onHub("AppProject", teamProject("team", "berlin"))
			p.onHub("Secret", aSecret("repo", "repository", "team"))
			require.NoError(t, p.send(facets.Repository, "repo"))
			made := p.spokeAPI.object("Secret", "repo")
			held := p.there.Replicas[facets.Repository].Held("repo")
			require.NotZero(t, held)

			changed := *p.spokeAPI.object("Secret", "repo")
			change(&changed)
			p.onSpoke("Secret", changed)
			require.NotEqual(t, held, p.there.Replicas[facets.Repository].Held("repo"), "it is noticed")
			require.NoError(t, p.send(facets.Repository, "repo"))
			is := p.spokeAPI.object("Secret", "repo")
			is.ResourceVersion = made.ResourceVersion
			require.Equal(t, made, is)
		})
	}
}

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

// Argo CD's repository server does not start without the ConfigMap of its keys.
func TestWithdrawnGPGKeysLeaveAnEmptyConfigMap(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	source := keys(map[string]string{"4AEE18F83AFDEB23": "a key"})
	source.BinaryData = map[string]string{"x": "eA=="}
	p.onHub("ConfigMap", source)
	require.NoError(t, p.send(facets.GPGKeys, argocd.KeysConfigMap))
	replica := p.there.Replicas[facets.GPGKeys]
	held, err := replica.Remove(t.Context(), argocd.KeysConfigMap, "hub-keys")
	require.NoError(t, err)
	require.Zero(t, held)
	is := p.spokeAPI.object("ConfigMap", argocd.KeysConfigMap)
	require.NotNil(t, is)
	require.Empty(t, is.Data)
	require.Empty(t, is.BinaryData)
	require.Empty(t, is.Annotations)
	p.spokeAPI.takeWrites()
	_, err = replica.Remove(t.Context(), argocd.KeysConfigMap, "")
	require.NoError(t, err)
	require.Empty(t, p.spokeAPI.takeWrites())

	own := *is
	own.Labels = map[string]string{argocd.LabelIgnore: "true"}
	p.onSpoke("ConfigMap", own)
	require.ErrorIs(t, p.send(facets.GPGKeys, argocd.KeysConfigMap), converge.ErrRefused, "it is the spoke's own now")
}

// What shows an autonomous agent's project on the hub lets anybody's applications be in any cluster, in the agent's
// namespace. It is for no managed agent, and no Secret on the hub becomes one's through it.
func TestMirroredAppProjectGoesToNoManagedAgent(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(hub, _ *facets.Options) {
		hub.Mapping = mapping.ByDestination{Hub: "argocd", Allowed: func(string) bool { return true }}
	})
	shown := teamProject("paris-own", "*")
	shown.Annotations = map[string]string{argocd.AnnotationAgent: "paris", argocd.AnnotationSourceUID: "on-paris"}
	p.onHub("AppProject", shown)
	p.onHub("Secret", aSecret("repo", "repository", "paris-own"))
	require.False(t, p.isOffered(facets.AppProject, "paris-own"))
	require.False(t, p.isOffered(facets.Repository, "repo"))
	shown.Annotations = nil
	p.onHub("AppProject", shown)
	require.True(t, p.isOffered(facets.AppProject, "paris-own"))
	require.True(t, p.isOffered(facets.Repository, "repo"))
}

// Argo CD makes the project default when it starts, and the spoke's own Applications may be in it.
func TestDefaultAppProjectIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, wiped := range map[string]bool{"with its annotations": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed)
			own := teamProject("default", "own")
			own.UID = "on-spoke"
			p.onSpoke("AppProject", own)
			for _, project := range []string{"default", "team"} {
				p.onHub("AppProject", teamProject(project, "berlin"))
				require.NoError(t, p.send(facets.AppProject, converge.Key(project)))
			}
			replica := *p.spokeAPI.object("AppProject", "default")
			if wiped {
				replica.Annotations = nil
				p.onSpoke("AppProject", replica)
			}
			facet := p.there.Replicas[facets.AppProject]
			_, err := facet.Remove(t.Context(), "default", "of-another")
			require.NoError(t, err)
			require.Equal(t, replica.Annotations, p.spokeAPI.object("AppProject", "default").Annotations)

			for _, project := range []string{"default", "team"} {
				p.onHub("AppProject", teamProject(project, "paris"))
				require.NoError(t, p.send(facets.AppProject, converge.Key(project)))
			}
			require.Nil(t, p.spokeAPI.object("AppProject", "team"))
			is := p.spokeAPI.object("AppProject", "default")
			require.Equal(t, own.UID, is.UID)
			require.Equal(t, replica.Spec, is.Spec)
			require.Empty(t, is.Annotations)
			require.Zero(t, facet.Held("default"))

			p.onHub("AppProject", teamProject("default", "berlin"))
			require.NoError(t, p.send(facets.AppProject, "default"))
			require.NotZero(t, facet.Held("default"))
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

// Source objects are selected by their labels, on whichever side they are. Replica objects stay replica objects whatever
// their labels.
func TestLabelSelectorAppliesToSourceObjects(t *testing.T) {
	t.Parallel()
	selector, err := facets.ParseSelector("team in (blue,green)")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"none":              {nil, false},
		"the label":         {map[string]string{"team": "blue"}, true},
		"another":           {map[string]string{"team": "red"}, false},
		"it is ignored":     {map[string]string{"team": "blue", argocd.LabelIgnore: "true"}, false},
		"it is not ignored": {map[string]string{"team": "blue", argocd.LabelIgnore: "false"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selected := func(hub, spoke *facets.Options) { hub.Selector, spoke.Selector = selector, selector }
			of := func(o argocd.Object) argocd.Object {
				for k, v := range c.labels {
					metav1.SetMetaDataLabel(&o.ObjectMeta, k, v)
				}
				return o
			}
			managed := newPair(t, facets.Managed, selected)
			managed.onHub("AppProject", of(teamProject("team", "berlin")))
			managed.onHub("Secret", of(aSecret("repo", "repository", "team")))
			managed.onHub("ConfigMap", of(keys(nil)))
			a := onHub()
			a.Labels = c.labels
			record(t, managed.hub.Applications, managed.hubAPI.put(a))
			autonomous := newPair(t, facets.Autonomous, selected)
			autonomous.onSpoke("AppProject", of(teamProject("team", "*")))
			b := onSpoke()
			b.Labels, b.Annotations = c.labels, nil
			record(t, autonomous.spoke.Applications, autonomous.spokeAPI.put(b))

			require.Equal(t, c.want, managed.isOffered(facets.AppProject, "team"))
			require.Equal(t, c.want, managed.isOffered(facets.Repository, "repo"))
			require.Equal(t, c.want, managed.isOffered(facets.GPGKeys, argocd.KeysConfigMap))
			require.Equal(t, c.want, managed.isOffered(facets.Application, "guestbook"))
			require.Equal(t, c.want, autonomous.isOffered(facets.AppProject, "team"))
			require.Equal(t, c.want, autonomous.isOffered(facets.Application, "guestbook"))
			app, ok := managed.hub.Store.Get(types.NamespacedName{Namespace: "berlin", Name: "guestbook"})
			require.True(t, ok)
			require.Equal(t, c.want, managed.here.Has(app))
			require.NoError(t, managed.here.Sources[facets.Application].ReportResult(t.Context(), "guestbook", refusal("too red")))
			require.Equal(t, c.want, len(managed.hubAPI.takeWrites()) > 0, "nothing is written to what is not shared")
		})
	}
}

// Somebody on the side of a replica object may label it to be ignored: it is a replica object all the same, and loses the label.
func TestIgnoreLabelDoesNotApplyToReplicas(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	there := onSpoke()
	there.Labels = map[string]string{argocd.LabelIgnore: "true"}
	p.spokeAPI.put(there)
	p.run(p.spoke.Cluster)
	require.NotZero(t, p.there.Replicas[facets.Application].Held("guestbook"))
	require.NoError(t, p.send(facets.Application, "guestbook"))
	require.Empty(t, p.spokeAPI.get("guestbook").Labels)
}

// What the other side refused is reported with the agent's name, since objects of these kinds have no conditions.
func TestObjectRefusedByTheOtherSideIsReported(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	source := p.here.Sources[facets.AppProject].Source
	for _, r := range []converge.Result{{Code: converge.Done}, {Code: converge.Refused, Reason: "too red"}, {Code: converge.Retry, Reason: "not yet"}} {
		require.NoError(t, source.ReportResult(t.Context(), "team", r))
	}
	require.NoError(t, source.ReportResult(t.Context(), "gone", converge.Result{Code: converge.Refused, Reason: "too red"}))
	require.Equal(t, []reported{
		{"berlin", facets.Project, "team", converge.Result{Code: converge.Refused, Reason: "too red"}},
		{"berlin", facets.Project, "team", converge.Result{Code: converge.Retry, Reason: "not yet"}},
	}, p.reports)
	require.False(t, source.HasRefusedCondition("team"))
}

// A replica object without a source UID would never be removed.
func TestObjectWithoutSourceUIDIsRefused(t *testing.T) {
	t.Parallel()
	managed, autonomous := newPair(t, facets.Managed), newPair(t, facets.Autonomous)
	for name, replica := range map[converge.Key]converge.Replica{
		"repo": managed.there.Replicas[facets.Repository], "team": managed.there.Replicas[facets.AppProject],
		argocd.KeysConfigMap: managed.there.Replicas[facets.GPGKeys], "own": autonomous.here.Replicas[facets.AppProject],
	} {
		payload := []byte(`{}`)
		_, err := replica.Apply(t.Context(), name, converge.Object{State: converge.State{Version: converge.VersionOf(payload)}, Payload: payload})
		require.ErrorIs(t, err, converge.ErrRefused, name)
		require.ErrorContains(t, err, "without the UID of its source object")
	}
	require.Empty(t, append(managed.spokeAPI.takeWrites(), autonomous.hubAPI.takeWrites()...))
}

// An object that cannot be decoded is refused, and nothing is written.
func TestMalformedObjectIsRefused(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{``, `7`, `[]`, `{"data":7}`, `{"data":{"a":7}}`} {
		p := newPair(t, facets.Managed)
		_, err := p.there.Replicas[facets.Repository].Apply(t.Context(), "repo", converge.Object{
			State: converge.State{UID: "x", Version: converge.VersionOf(json.RawMessage(payload))}, Payload: []byte(payload),
		})
		require.ErrorIs(t, err, converge.ErrRefused, payload)
		require.Empty(t, p.spokeAPI.takeWrites())
	}
}

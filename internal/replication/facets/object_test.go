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

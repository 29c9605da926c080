package facets_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// told is the object that a principal sends, which says anything it likes.
func told(payload string) converge.Object {
	return converge.Object{State: converge.State{UID: "told", Version: converge.VersionOf([]byte(payload))}, Payload: []byte(payload)}
}

// tell has a principal send an object to a managed spoke.
func (p *pair) tell(f converge.Facet, key converge.Key, payload string) error {
	p.Helper()
	_, err := p.there.Replicas[f].Apply(p.Context(), key, told(payload))
	return err
}

// A principal that could write any ConfigMap would write the policy for its own access to the spoke, and Argo CD's settings.
func TestHubWritesNoConfigMapButGPGKeys(t *testing.T) {
	t.Parallel()
	names := []string{"argocd-agent-policy", "argocd-cm", "argocd-rbac-cm", "argocd-cmd-params-cm", "argocd-gpg-keys-cm2", "Argocd-gpg-keys-cm", "../configmaps/argocd-cm", ""}
	for _, there := range []bool{false, true} {
		p := newPair(t, facets.Managed)
		for _, name := range names {
			var before *argocd.Object
			if there {
				before = p.spokeAPI.putObject("ConfigMap", argocd.Object{ObjectMeta: metav1.ObjectMeta{
					Namespace: "argocd", Name: name, Annotations: map[string]string{argocd.AnnotationSourceUID: "told"},
				}})
			}
			err := p.tell(facets.GPGKeys, converge.Key(name), `{"data":{"policy.yaml":"rules: []"}}`)
			require.ErrorIs(t, err, converge.ErrRefused, name)
			require.ErrorContains(t, err, `there is one ConfigMap of GPG keys, "argocd-gpg-keys-cm", and no other is shared`)
			_, err = p.there.Replicas[facets.GPGKeys].Remove(t.Context(), converge.Key(name), "")
			require.NoError(t, err)
			require.Equal(t, before, p.spokeAPI.object("ConfigMap", name))
		}
		require.Empty(t, p.spokeAPI.takeWrites())
	}
}

// Of another use or type, a Secret runs programs in Argo CD's controller, or has Kubernetes write a token into it. By its name it
// becomes a certificate or a password of Argo CD's.
func TestHubWritesNoSecretButRepositories(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	for use, facet := range map[string]converge.Facet{"repository": facets.Repository, "repo-creds": facets.RepoCreds} {
		for name, payload := range map[string]string{
			"cluster":      `{"labels":{"argocd.argoproj.io/secret-type":"cluster"},"type":"Opaque"}`,
			"write":        `{"labels":{"argocd.argoproj.io/secret-type":"repository-write"}}`,
			"other-facets": `{"labels":{"argocd.argoproj.io/secret-type":"` + map[string]string{"repository": "repo-creds", "repo-creds": "repository"}[use] + `"}}`,
			"no-use":       `{"type":"Opaque"}`,
			"folded-use":   `{"labels":{"argocd.argoproj.io/Secret-type":"` + use + `"}}`,
			"token":        `{"labels":{"argocd.argoproj.io/secret-type":"` + use + `"},"type":"kubernetes.io/service-account-token","annotations":{"kubernetes.io/service-account.name":"argocd-application-controller"}}`,
			"tls":          `{"labels":{"argocd.argoproj.io/secret-type":"` + use + `"},"type":"kubernetes.io/tls"}`,
			"bootstrap":    `{"labels":{"argocd.argoproj.io/secret-type":"` + use + `"},"type":"bootstrap.kubernetes.io/token"}`,
		} {
			require.ErrorIs(t, p.tell(facet, converge.Key(name), payload), converge.ErrRefused, name)
		}
		for _, name := range []string{"argocd-secret", "argocd-server-tls", "argocd-repo-server-tls", "argocd-redis", "argocd-agent-client-tls", "argocd-agent-ca"} {
			err := p.tell(facet, converge.Key(name), `{"labels":{"argocd.argoproj.io/secret-type":"`+use+`"}}`)
			require.ErrorIs(t, err, converge.ErrRefused, name)
			require.ErrorContains(t, err, "takes its own settings from: give this one another name")
		}
	}
	require.Empty(t, p.spokeAPI.takeWrites())
}

// Nor do the Secrets that an operator named by flags.
func TestHubWritesNoSecretThatTheAgentIsToldToRead(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.OwnSecrets = []string{"my-tls", "my-ca"} })
	for facet, use := range map[converge.Facet]string{facets.Repository: "repository", facets.RepoCreds: "repo-creds"} {
		payload := `{"labels":{"argocd.argoproj.io/secret-type":"` + use + `"}}`
		for _, name := range []converge.Key{"my-tls", "my-ca"} {
			err := p.tell(facet, name, payload)
			require.ErrorIs(t, err, converge.ErrRefused, name)
			require.ErrorContains(t, err, "takes its own settings from: give this one another name")
		}
		require.NoError(t, p.tell(facet, converge.Key("my-"+use), payload))
	}
}

// What a principal adds to an object that it may write gives that no other meaning, to nobody on the spoke.
func TestHubAddsNothingToObjectsBesideTheirContent(t *testing.T) {
	t.Parallel()
	const metadata = `"finalizers":["example.com/stuck"],"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}],` +
		`"immutable":true,"metadata":{"name":"other"},"stringData":{"x":"y"},"annotations":{` +
		`"argocd.argoproj.io/source-uid":"theirs","argocd.argoproj.io/principal-uid":"theirs","argocd-agent.argoproj-labs.io/applied":"x",` +
		`"argocd-agent.argoproj-labs.io/agent":"paris","argocd.argoproj.io/tracking-id":"own:/Secret:argocd/repo","argocd.argoproj.io/installation-id":"x",` +
		`"kubernetes.io/service-account.name":"admin","reflector.v1.k8s.emberstack.com/reflection-allowed":"true","managed-by":"x",` +
		`"argocd.argoproj.io/refresh":"hard","argocd.argoproj.io/sync-wave":"1"},`
	const labels = `"argocd-agent.argoproj-labs.io/ignore-sync":"true","app.kubernetes.io/instance":"own"`
	p := newPair(t, facets.Managed)
	for _, c := range []struct {
		facet      converge.Facet
		kind, name string
		payload    string
		labels     map[string]string
	}{
		{facets.Repository, "Secret", "repo", `"type":"","data":{"url":"eA=="},"binaryData":{"x":"eA=="},"spec":{},"labels":{` + labels +
			`,"argocd.argoproj.io/secret-type":"repository","app.kubernetes.io/part-of":"argocd"}`, map[string]string{argocd.LabelSecretType: "repository"}},
		{facets.GPGKeys, "ConfigMap", argocd.KeysConfigMap, `"type":"x","data":{"key":"x"},"spec":{},"labels":{` + labels +
			`,"app.kubernetes.io/part-of":"argocd","app.kubernetes.io/name":"argocd-cm"}`, map[string]string{"app.kubernetes.io/part-of": "argocd"}},
		{facets.AppProject, "AppProject", "team", `"type":"x","data":{"key":"x"},"spec":{},"labels":{` + labels + `,"team":"blue"}`, map[string]string{"team": "blue"}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			require.NoError(t, p.tell(c.facet, converge.Key(c.name), "{"+metadata+c.payload+"}"))
			is := p.spokeAPI.object(c.kind, c.name)
			require.Equal(t, c.labels, is.Labels)
			require.Equal(t, []string{"argocd-agent.argoproj-labs.io/applied", "argocd.argoproj.io/source-uid", "argocd.argoproj.io/sync-wave"},
				slices.Sorted(maps.Keys(is.Annotations)))
			require.Equal(t, "told", is.Annotations[argocd.AnnotationSourceUID])
			require.Empty(t, is.Finalizers)
			require.Empty(t, is.OwnerReferences)
			require.False(t, is.Immutable)
			require.Equal(t, c.kind == "Secret", is.Type == "Opaque")
			require.Equal(t, c.kind == "AppProject", is.Data == nil)
			require.Empty(t, is.BinaryData)
			held := p.there.Replicas[c.facet].Held(converge.Key(c.name))
			require.Equal(t, told("{"+metadata+c.payload+"}").State, held, "it is not sent again for that")
		})
	}
}

// An Application's labels and annotations are its owner's, but for those by which an agent works.
func TestHubGivesApplicationsNoMeaningToTheAgent(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	const payload = `{"labels":{"team":"blue","argocd-agent.argoproj-labs.io/ignore-sync":"true"},"annotations":{"mine":"yes",` +
		`"argocd-agent.argoproj-labs.io/intent":"{\"operation\":\"x\"}","argocd-agent.argoproj-labs.io/agent":"paris",` +
		`"argocd.argoproj.io/principal-uid":"other","argocd.argoproj.io/refresh":"hard"},` +
		`"finalizers":["example.com/stuck","resources-finalizer.argocd.argoproj.io","foregroundDeletion"],` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}],"operation":{"sync":{}},"status":{"sync":{}},` +
		`"spec":{"destination":{"name":"in-cluster","namespace":"x"},"project":"default"}}`
	require.NoError(t, p.tell(facets.Application, "guestbook", payload))
	is := p.spokeAPI.get("guestbook")
	require.Equal(t, map[string]string{"team": "blue"}, is.Labels)
	require.Equal(t, []string{"argocd-agent.argoproj-labs.io/applied", "argocd.argoproj.io/source-uid", "mine"}, slices.Sorted(maps.Keys(is.Annotations)))
	require.Equal(t, []string{argocd.FinalizerCascade}, is.Finalizers)
	require.Empty(t, is.OwnerReferences)
	require.Empty(t, is.Operation)
	require.Empty(t, is.Status)

	deletion, err := json.Marshal(map[string]any{"deleting": true, "finalizers": []string{"example.com/stuck"}})
	require.NoError(t, err)
	require.NoError(t, p.tell(facets.Application, "guestbook", string(deletion)))
	require.Nil(t, p.spokeAPI.get("guestbook"), "it does not wait for a finalizer that nobody works off")
}

// What the spoke does not want adopted the hub does not get, whatever its Application says.
func TestHubDoesNotLoosenTheAdoptionPolicy(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.AdoptionPolicy.Adoption = facets.AdoptNever })
	own := onSpoke()
	own.Annotations = nil
	record(t, p.spoke.Applications, p.spokeAPI.put(own))
	err := p.tell(facets.Application, "guestbook", `{"annotations":{"`+adoption+`":"always"},"spec":{}}`)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "may not be adopted")
	require.Empty(t, p.spokeAPI.takeWrites())
}

// Projects and keys of the spoke's own stay the spoke's too, unless it says otherwise for one. What Argo CD was installed with and has
// nothing in it is nobody's.
func TestNothingIsAdoptedOfASpokeThatSaysNever(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.AdoptionPolicy.Adoption = facets.AdoptNever })
	own := teamProject("team", "berlin")
	own.Spec = json.RawMessage(`{"sourceRepos":["https://example.com/own"]}`)
	p.onSpoke("AppProject", own)
	keys := argocd.Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: argocd.KeysConfigMap, UID: "keys"}, Data: map[string]string{"OWN": "key"},
	}
	p.onSpoke("ConfigMap", keys)
	p.spokeAPI.takeWrites()
	tell := func() map[string]error {
		return map[string]error{
			"the AppProject": p.tell(facets.AppProject, "team", `{"annotations":{"`+adoption+`":"always"},"spec":{"sourceRepos":["*"]}}`),
			"the ConfigMap":  p.tell(facets.GPGKeys, argocd.KeysConfigMap, `{"annotations":{"`+adoption+`":"always"},"data":{"A":"key"}}`),
		}
	}
	for what, err := range tell() {
		require.ErrorIs(t, err, converge.ErrRefused)
		require.ErrorContains(t, err, what+" of this name is there already and may not be adopted: delete it, or set its annotation "+adoption+": always")
	}
	require.Empty(t, p.spokeAPI.takeWrites())

	own.Annotations = map[string]string{adoption: facets.AdoptAlways}
	p.onSpoke("AppProject", own)
	keys.Data = nil
	p.onSpoke("ConfigMap", keys)
	for what, err := range tell() {
		require.NoError(t, err, what)
	}
	require.Equal(t, map[string]string{"A": "key"}, p.spokeAPI.object("ConfigMap", argocd.KeysConfigMap).Data)
}

package facets_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

const (
	denial = `{"namespace":"argocd","server":"!**"}`
	mine   = `{"name":"in-cluster","namespace":"*","server":"https://kubernetes.default.svc"}`
)

// closed has the spoke close Argo CD's and the agent's own namespace.
func closed(_, spoke *facets.Options) { spoke.ClosedNamespace = "argocd" }

// reopened is the pair with another agent on the same spoke, which closes another namespace or none.
func (p *pair) reopened(namespace string) *pair {
	p.Helper()
	other := newPair(p.T, facets.Managed, func(_, spoke *facets.Options) {
		spoke.ClosedNamespace, spoke.Config.Host = namespace, p.spokeAPI.URL
	})
	other.spokeAPI = p.spokeAPI
	return other
}

// destinationsOf returns a project's destinations on the spoke.
func (p *pair) destinationsOf(name string) string {
	p.Helper()
	var spec struct {
		Destinations json.RawMessage `json:"destinations"`
	}
	require.NoError(p, json.Unmarshal(p.spokeAPI.object("AppProject", name).Spec, &spec))
	return string(spec.Destinations)
}

// Whatever a principal sends as a project, the namespace is denied in it, and stays so.
func TestHubsProjectsAreClosedToTheAgentsNamespace(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, closed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	require.NoError(t, p.send(facets.AppProject, "team"))
	require.JSONEq(t, `[`+mine+`,`+denial+`]`, p.destinationsOf("team"))
	p.spokeAPI.takeWrites()
	require.NoError(t, p.send(facets.AppProject, "team"))
	require.Empty(t, p.spokeAPI.takeWrites())

	for payload, want := range map[string]string{
		`{"spec":{}}`:                                                       `[` + denial + `]`,
		`{"spec":{"destinations":null}}`:                                    `[` + denial + `]`,
		`{"spec":{"destinations":[` + denial + `]}}`:                        `[` + denial + `]`,
		`{"spec":{"Destinations":[{"server":"*"}]}}`:                        `[` + denial + `]`,
		`{"spec":{"destinations":[7,{"server":"*"}]}}`:                      `[7,{"server":"*"},` + denial + `]`,
		`{"spec":{"destinations":[` + denial + `,{}]}}`:                     `[{},` + denial + `]`,
		`{"annotations":{"` + argocd.AnnotationClosed + `":"x"},"spec":{}}`: `[` + denial + `]`,
	} {
		require.NoError(t, p.tell(facets.AppProject, "told", payload), payload)
		require.JSONEq(t, want, p.destinationsOf("told"), payload)
		require.Equal(t, "argocd", p.spokeAPI.object("AppProject", "told").Annotations[argocd.AnnotationClosed])
	}
	require.ErrorIs(t, p.tell(facets.AppProject, "told", `{"spec":{"destinations":{"server":"*"}}}`), converge.ErrRefused)
	require.ErrorIs(t, p.tell(facets.AppProject, "told", `{"spec":[]}`), converge.ErrRefused)

	offered, ok := p.here.Sources[facets.AppProject].Project("team")
	require.True(t, ok)
	var hubs argocd.Content
	require.NoError(t, json.Unmarshal(offered.Payload, &hubs))
	for _, spec := range []json.RawMessage{json.RawMessage(`{"destinations":[` + mine + `]}`), hubs.Spec} {
		edited := *p.spokeAPI.object("AppProject", "team")
		edited.Spec = spec
		held := p.there.Replicas[facets.AppProject].Held("team")
		p.onSpoke("AppProject", edited)
		require.NotEqual(t, held, p.there.Replicas[facets.AppProject].Held("team"), "%s: the hub is asked for it", spec)
		require.NoError(t, p.send(facets.AppProject, "team"))
		require.JSONEq(t, `[`+mine+`,`+denial+`]`, p.destinationsOf("team"))
	}
}

// An agent that starts with another setting makes the projects anew, though the hub's have not changed; and what it recalls after
// a restart it still protects from drift.
func TestProjectsFollowTheSettingOfTheAgent(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	p.onHub("AppProject", teamProject("team", "berlin"))
	require.NoError(t, p.send(facets.AppProject, "team"))
	before := p.there.Replicas[facets.AppProject].Held("team")
	for _, namespace := range []string{"argocd", "other", ""} {
		p = p.reopened(namespace)
		p.onHub("AppProject", teamProject("team", "berlin"))
		recordObject(t, p.spoke.Cluster, p.spokeAPI.object("AppProject", "team"))
		replica := p.there.Replicas[facets.AppProject]
		require.NotEqual(t, before.Version, replica.Held("team").Version, "the hub is asked for it")
		require.Equal(t, before.UID, replica.Held("team").UID)
		_, ok := replica.Recall("team")
		require.False(t, ok)
		require.NoError(t, p.send(facets.AppProject, "team"))
		require.Equal(t, before, replica.Held("team"))
		require.Equal(t, namespace, p.spokeAPI.object("AppProject", "team").Annotations[argocd.AnnotationClosed])
		recalled, ok := replica.Recall("team")
		require.True(t, ok)
		p.spokeAPI.takeWrites()
		held, err := replica.Apply(t.Context(), "team", recalled)
		require.NoError(t, err)
		require.Equal(t, before, held)
		require.Empty(t, p.spokeAPI.takeWrites())
	}
	require.JSONEq(t, `[`+mine+`]`, p.destinationsOf("team"))
	require.NotContains(t, p.spokeAPI.object("AppProject", "team").Annotations, argocd.AnnotationClosed)
}

// A project of the spoke's own that permits the namespace is not for applications of the hub's, which would deploy there by it.
func TestHubsApplicationsStayOutOfTheAgentsNamespace(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, closed)
	err := p.tell(facets.Application, "guestbook", `{"spec":{"destination":{"name":"in-cluster","namespace":"argocd"},"project":"team"}}`)
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, `its destination is namespace "argocd", where the spoke's Argo CD and its agent are, and which is closed to the hub`)
	require.ErrorIs(t, p.tell(facets.Application, "guestbook", `{"spec":[]}`), converge.ErrRefused)

	own := argocd.Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "default", UID: "on-spoke"},
		Spec:       json.RawMessage(`{"destinations":[{"server":"*","namespace":"*"}]}`),
	}
	p.onSpoke("AppProject", own)
	for _, project := range []string{`"project":"default"`, `"project":""`, `"Project":"team"`} {
		err = p.tell(facets.Application, "guestbook", `{"spec":{"destination":{"namespace":"x"},`+project+`}}`)
		require.ErrorContains(t, err, `its project "default" on the spoke permits namespace "argocd"`)
		require.NotErrorIs(t, err, converge.ErrRefused, "the hub's may be on its way")
	}
	require.Empty(t, p.spokeAPI.takeWrites())

	p.onHub("AppProject", teamProject("default", "berlin"))
	require.NoError(t, p.send(facets.AppProject, "default"))
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	require.NoError(t, p.send(facets.Application, "guestbook"))

	p.onHub("AppProject", teamProject("default", "paris"))
	require.NoError(t, p.send(facets.AppProject, "default"))
	require.JSONEq(t, `[`+mine+`,`+denial+`]`, p.destinationsOf("default"), "it stays closed when the hub withdraws it")
	require.Empty(t, p.spokeAPI.object("AppProject", "default").Annotations)
	require.NoError(t, p.send(facets.Application, "guestbook"))
}

// With --allow-own-namespace the hub decides.
func TestOpenNamespaceIsForHubsApplications(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	require.NoError(t, p.tell(facets.Application, "guestbook", `{"spec":{"destination":{"name":"in-cluster","namespace":"argocd"},"project":"default"}}`))
	require.NotNil(t, p.spokeAPI.get("guestbook"))
}

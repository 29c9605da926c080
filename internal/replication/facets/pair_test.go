package facets_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
)

// noopListener ignores everything: tests decide what happens when.
type noopListener struct{}

func (noopListener) ApplicationChanged(_, _ *argocd.App)               {}
func (noopListener) RecordChanged(_ facets.Kind, _, _ *argocd.Record)  {}
func (noopListener) ApplicationsVanished([]*argocd.App)                {}
func (noopListener) RecordsVanished(_ facets.Kind, _ []*argocd.Record) {}

// reported is what was reported to users.
type reported struct {
	agent  string
	kind   facets.Kind
	name   string
	result converge.Result
}

// pair is a hub and the spoke of the agent berlin, with API servers of their own. Nothing travels but what a test has travel.
type pair struct {
	*testing.T

	hubAPI, spokeAPI *apiServer
	hub              facets.Hub
	spoke            facets.Spoke
	here, there      facets.Share // the hub's and the spoke's
	reports          []reported
	failed           []string // writes, by facet and reason
}

// Object implements facets.Reporter.
func (p *pair) Object(_ context.Context, agent string, kind facets.Kind, r *argocd.Record, result converge.Result) {
	p.reports = append(p.reports, reported{agent, kind, r.Name.Name, result})
}

// StatusRefusedHere implements facets.Reporter.
func (p *pair) StatusRefusedHere(_ context.Context, agent string, app *argocd.App, reason string) {
	p.reports = append(p.reports, reported{agent, "Application", app.Name.Name, converge.Result{Reason: reason}})
}

// StatusRefusedByHub implements facets.Reporter.
func (p *pair) StatusRefusedByHub(_ context.Context, app *argocd.App, result converge.Result) {
	p.reports = append(p.reports, reported{"", "Application", app.Name.Name, result})
}

// Pruned implements facets.Reporter.
func (p *pair) Pruned(_ context.Context, app *argocd.App) {
	p.reports = append(p.reports, reported{"", "Application", app.Name.Name, converge.Result{Reason: "pruned"}})
}

// CountFailedWrite implements facets.Reporter.
func (p *pair) CountFailedWrite(f converge.Facet, reason string) {
	p.failed = append(p.failed, string(f)+" "+reason)
}

// newPair returns a pair of that mode. change may change what is followed of the two clusters.
func newPair(t *testing.T, mode facets.Mode, change ...func(hub, spoke *facets.Options)) *pair {
	t.Helper()
	p := &pair{T: t, hubAPI: newAPIServer(t), spokeAPI: newAPIServer(t)}
	all, err := facets.ParseSelector("")
	require.NoError(t, err)
	hub := facets.Options{
		Config: &rest.Config{Host: p.hubAPI.URL}, Name: "hub", Namespace: "argocd", Kinds: facets.Kinds(), Mapping: mapping.ByNamespace{},
		Selector: all, Listener: noopListener{}, Reporter: p,
		Group: func(app *argocd.App) string { return app.Name.Namespace },
	}
	spoke := facets.Options{
		Config: &rest.Config{Host: p.spokeAPI.URL}, Name: "spoke", Namespace: "argocd", ApplicationNamespace: "argocd", Kinds: mode.Kinds(), KeepStatus: true,
		Mapping: mapping.ByNamespace{Spoke: "argocd"}, Selector: all, Listener: noopListener{}, Reporter: p,
		Agent: func() string { return "berlin" },
	}
	for _, c := range change {
		c(&hub, &spoke)
	}
	hubCluster, err := facets.Open(hub)
	require.NoError(t, err)
	spokeCluster, err := facets.Open(spoke)
	require.NoError(t, err)
	p.hub = facets.Hub{Cluster: hubCluster, Server: func(agent string) string { return "https://proxy?agentName=" + agent }}
	p.spoke = facets.Spoke{Cluster: spokeCluster}
	p.here, p.there = p.hub.Share("berlin", mode), p.spoke.Share(mode)
	return p
}

// recordObject gives a cluster's store the object as it is stored now.
func recordObject(t *testing.T, c *facets.Cluster, o *argocd.Object) *argocd.Record {
	t.Helper()
	records := map[string]facets.Records{"AppProject": c.Projects, "Secret": c.Secrets, "ConfigMap": c.ConfigMaps}[o.Kind]
	record, err := records.Store.RecordWrite(o)
	require.NoError(t, err)
	return record
}

// onHub has somebody write an object on the hub, and onSpoke on the spoke.
func (p *pair) onHub(kind string, o argocd.Object) *argocd.Object {
	p.Helper()
	stored := p.hubAPI.putObject(kind, o)
	recordObject(p.T, p.hub.Cluster, stored)
	return stored
}

func (p *pair) onSpoke(kind string, o argocd.Object) *argocd.Object {
	p.Helper()
	stored := p.spokeAPI.putObject(kind, o)
	recordObject(p.T, p.spoke.Cluster, stored)
	return stored
}

// run follows a cluster until the test is over, and waits until it is synced.
func (p *pair) run(c *facets.Cluster) {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	p.Cleanup(func() { cancel(); running.Wait() })
	require.True(p, c.Wait(ctx))
}

// send applies the source object of a key on the replica's side.
func (p *pair) send(f converge.Facet, key converge.Key) error {
	p.Helper()
	from, to := p.here, p.there
	if _, ok := from.Sources[f]; !ok {
		from, to = to, from
	}
	object, ok := from.Sources[f].Project(key)
	if !ok {
		held, err := to.Replicas[f].Remove(p.Context(), key, "")
		require.True(p, err != nil || held == converge.State{})
		return err
	}
	held, err := to.Replicas[f].Apply(p.Context(), key, object)
	if err == nil {
		require.Equal(p, object.State, held)
		require.Equal(p, object.State, to.Replicas[f].Held(key))
	}
	return err
}

// isOffered reports whether the source has an object under a key, by All and by Project.
func (p *pair) isOffered(f converge.Facet, key converge.Key) bool {
	p.Helper()
	source := p.here.Sources[f].Source
	if source == nil {
		source = p.there.Sources[f].Source
	}
	object, offered := source.Project(key)
	listed := false
	for k, state := range source.All() {
		if k == key {
			listed = true
			require.Equal(p, object.State, state)
		}
	}
	require.Equal(p, offered, listed)
	return offered
}

// aSecret is one of a repository or of credentials, of a project.
func aSecret(name, use, project string) argocd.Object {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	data := map[string]string{"url": encode("https://git.example.com"), "password": encode("hunter2")}
	if project != "" {
		data["project"] = encode(project)
	}
	return argocd.Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: name, UID: types.UID("hub-" + name), Labels: map[string]string{argocd.LabelSecretType: use}},
		Type:       "Opaque", Data: data,
	}
}

// teamProject is a project for agents of that pattern.
func teamProject(name, agents string) argocd.Object {
	return argocd.Object{
		ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: name, UID: types.UID("hub-" + name)},
		Spec:       json.RawMessage(`{"destinations":[{"name":"` + agents + `","namespace":"*"}],"sourceNamespaces":["*"],"sourceRepos":["*"]}`),
	}
}

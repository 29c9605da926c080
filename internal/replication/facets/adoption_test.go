package facets_test

import (
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// What becomes of an application that is where a replica object should be.
const (
	changed  = "changed in place"
	replaced = "replaced by a new one"
	spared   = "left as it is"
)

// verdicts are what is there, what the general policies are, and what becomes of it.
type verdicts map[string]struct {
	there, source map[string]string // annotations
	adoption      facets.AdoptionPolicy
	hub           string // what it is known by
	want          string
	says          string // why it is left as it is
}

const (
	adoption = "argocd.argoproj.io/adoption-policy"
	mismatch = "argocd.argoproj.io/source-uid-mismatch-policy"
)

func from(uid string, more ...string) map[string]string {
	annotations := map[string]string{argocd.AnnotationSourceUID: uid}
	for i := 0; i < len(more); i += 2 {
		annotations[more[i]] = more[i+1]
	}
	return annotations
}

// try has the hub's application be applied where another is.
func (v verdicts) try(t *testing.T) {
	t.Helper()
	for name, c := range v {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed, func(_, spoke *facets.Options) {
				spoke.AdoptionPolicy = c.adoption
				spoke.AdoptionPolicy.Origin = func() string { return c.hub }
			})
			source := onHub(foreground)
			source.Annotations = c.source
			record(t, p.hub.Applications, p.hubAPI.put(source))
			there := onSpoke(foreground)
			there.Annotations = c.there
			there.Status = json.RawMessage(`{"health":{"status":"Healthy"}}`)
			record(t, p.spoke.Applications, p.spokeAPI.put(there))
			before := p.spokeAPI.get("guestbook")

			err := p.send(facets.Application, "guestbook")
			is := p.spokeAPI.get("guestbook")
			if c.want == spared {
				require.ErrorIs(t, err, converge.ErrRefused)
				require.ErrorContains(t, err, c.says)
				require.Equal(t, before, is)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "on-hub", is.Annotations[argocd.AnnotationSourceUID])
			if c.hub != "" {
				require.Equal(t, c.hub, is.Annotations[argocd.AnnotationPrincipalUID])
			}
			if c.want == changed {
				require.Equal(t, before.UID, is.UID)
				require.JSONEq(t, string(before.Status), string(is.Status))
				return
			}
			require.NotEqual(t, before.UID, is.UID)
			require.Empty(t, is.Status)
			require.Equal(t, []string{"patch to []", "delete with []", "create"}, p.spokeAPI.takeWrites(), "its resources stay")
		})
	}
}

// The identity matrix. The first columns are what the application that is there was made from.
func TestSourceUIDMismatchPolicies(t *testing.T) {
	t.Parallel()
	verdicts{
		"of this source object":                                          {there: from("on-hub"), want: changed},
		"of this source object, of another hub":                          {there: from("on-hub", argocd.AnnotationPrincipalUID, "old"), hub: "new", want: changed},
		"of another source object, of another hub":                       {there: from("other", argocd.AnnotationPrincipalUID, "old"), hub: "new", want: changed},
		"of another source object, when no hub was noted":                {there: from("other"), hub: "new", want: changed},
		"of another source object, of a hub that says nothing of itself": {there: from("other", argocd.AnnotationPrincipalUID, "old"), want: changed},
		"of another source object of this hub":                           {there: from("other", argocd.AnnotationPrincipalUID, "new"), hub: "new", want: replaced},
		"of another source object, and hubs say nothing":                 {there: from("other"), want: replaced},
		"of another, and recreate":                                       {there: from("other"), adoption: facets.AdoptionPolicy{Mismatch: facets.MismatchRecreate}, want: replaced},
		"of another, and upsert":                                         {there: from("other"), adoption: facets.AdoptionPolicy{Mismatch: facets.MismatchUpsert}, want: changed},
		"of another, and its annotation wins":                            {there: from("other", mismatch, "upsert"), source: map[string]string{mismatch: "recreate"}, want: changed},
		"of another, and the source object wins":                         {there: from("other"), source: map[string]string{mismatch: "recreate"}, adoption: facets.AdoptionPolicy{Mismatch: facets.MismatchUpsert}, want: replaced},
		"of another, and a bad annotation":                               {there: from("other", mismatch, "Upsert"), want: spared, says: mismatch + `: "Upsert": want recreate or upsert`},
		"of another, and a bad one on the source object":                 {there: from("other"), source: map[string]string{mismatch: "always"}, want: spared, says: mismatch + `: "always": want recreate or upsert`},
		"of this source object, and a bad annotation":                    {there: from("on-hub", mismatch, "x", adoption, "y"), want: changed},
	}.try(t)
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	const no = "an application of this name is there already and may not be adopted: delete it, or set its annotation " + adoption + ": always"
	never, always := facets.AdoptionPolicy{Adoption: facets.AdoptNever}, facets.AdoptionPolicy{Adoption: facets.AdoptAlways}
	verdicts{
		"nothing is said":                 {want: changed},
		"always":                          {adoption: always, want: changed},
		"never":                           {adoption: never, want: spared, says: no},
		"never, and its annotation wins":  {there: map[string]string{adoption: "always"}, source: map[string]string{adoption: "never"}, adoption: never, want: changed},
		"always, and its annotation":      {there: map[string]string{adoption: "never"}, adoption: always, want: spared, says: no},
		"always, and the source object's": {source: map[string]string{adoption: "never"}, adoption: always, want: spared, says: no},
		"a bad annotation":                {there: map[string]string{adoption: "yes"}, adoption: always, want: spared, says: adoption + `: "yes": want always or never`},
		"an empty annotation":             {there: map[string]string{adoption: ""}, adoption: never, want: spared, says: no},
		"of this hub, and applied":        {there: map[string]string{argocd.AnnotationPrincipalUID: "new", argocd.AnnotationApplied: "x"}, hub: "new", adoption: never, want: changed},
		"of this hub only":                {there: map[string]string{argocd.AnnotationPrincipalUID: "new"}, hub: "new", adoption: never, want: spared, says: no},
		"of another hub only":             {there: map[string]string{argocd.AnnotationPrincipalUID: "old"}, hub: "new", adoption: never, want: spared, says: no},
	}.try(t)
}

func TestIgnoredApplicationIsNotAdopted(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed)
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	there := onSpoke()
	there.Annotations, there.Labels = nil, map[string]string{argocd.LabelIgnore: "true"}
	record(t, p.spoke.Applications, p.spokeAPI.put(there))
	err := p.send(facets.Application, "guestbook")
	require.ErrorIs(t, err, converge.ErrRefused)
	require.ErrorContains(t, err, "has the label "+argocd.LabelIgnore+": rename or delete one of the two")
	require.Empty(t, p.spokeAPI.takeWrites())
}

// A replica object whose annotations were wiped is known while the agent runs, and adopted by one that has just started.
func TestReplicaWithoutAnnotationsIsStillKnown(t *testing.T) {
	t.Parallel()
	p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.AdoptionPolicy.Adoption = facets.AdoptNever })
	record(t, p.hub.Applications, p.hubAPI.put(onHub()))
	require.NoError(t, p.send(facets.Application, "guestbook"))
	wiped := *p.spokeAPI.get("guestbook")
	wiped.Annotations = nil
	record(t, p.spoke.Applications, p.spokeAPI.put(wiped))
	require.NoError(t, p.send(facets.Application, "guestbook"))
	require.Equal(t, wiped.UID, p.spokeAPI.get("guestbook").UID)

	record(t, p.spoke.Applications, p.spokeAPI.put(wiped))
	_, err := p.spoke.Share(facets.Managed).Replicas[facets.Application].Apply(t.Context(), "guestbook", source(t, p))
	require.ErrorContains(t, err, "may not be adopted")
}

func source(t *testing.T, p *pair) converge.Object {
	t.Helper()
	object, ok := p.here.Sources[facets.Application].Project("guestbook")
	require.True(t, ok)
	return object
}

// What a replica object begins with that somebody on the spoke deleted.
func TestDeletedReplicaIsRecreatedByPolicy(t *testing.T) {
	t.Parallel()
	const had = `{"health":{"status":"Healthy"},"operationState":{"phase":"Running","startedAt":"2026-01-01T12:00:00Z"}}`
	for policy, c := range map[string]struct{ status, operation string }{
		"":                         {status: "Healthy"},
		facets.RecreateIgnore:      {status: "Healthy"},
		facets.RecreateClearStatus: {},
		facets.RecreateResync:      {operation: `{"initiatedBy":{"username":"argocd-agent"},"sync":{}}`},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.AdoptionPolicy.Recreate = policy })
			record(t, p.hub.Applications, p.hubAPI.put(onHub()))
			require.NoError(t, p.send(facets.Application, "guestbook"))
			first := p.spokeAPI.get("guestbook")
			require.Empty(t, first.Status)
			require.Empty(t, first.Operation, "nobody deleted it")
			ran := *first
			ran.Status = json.RawMessage(had)
			record(t, p.spoke.Applications, p.spokeAPI.put(ran))
			p.loses("guestbook")

			require.NoError(t, p.send(facets.Application, "guestbook"))
			again := p.spokeAPI.get("guestbook")
			require.NotEqual(t, first.UID, again.UID)
			if c.status == "" {
				require.Empty(t, again.Status)
			} else {
				require.Contains(t, string(again.Status), c.status)
				require.NotContains(t, string(again.Status), "Running", "nobody runs it any more")
			}
			if c.operation == "" {
				require.Empty(t, again.Operation)
			} else {
				require.JSONEq(t, c.operation, string(again.Operation))
			}

			// One that is withdrawn, or deleted, and comes back begins as any other does: nothing is remembered of it.
			object := source(t, p)
			for _, remove := range []func() (converge.State, error){
				func() (converge.State, error) {
					return p.there.Replicas[facets.Application].Remove(t.Context(), "guestbook", "on-hub")
				},
				func() (converge.State, error) {
					return p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", deletion(t))
				},
			} {
				held, err := remove()
				require.NoError(t, err)
				require.Zero(t, held)
				_, err = p.there.Replicas[facets.Application].Apply(t.Context(), "guestbook", object)
				require.NoError(t, err)
				require.Empty(t, p.spokeAPI.get("guestbook").Status)
				require.Empty(t, p.spokeAPI.get("guestbook").Operation)
			}
		})
	}
}

// What its deletion pruned stays away, unless it is synced at once. Whoever waits for it is told, once for each.
func TestDeletionThatPrunedIsReported(t *testing.T) {
	t.Parallel()
	for policy, finalizers := range map[string][]string{
		facets.RecreateIgnore: {foreground}, facets.RecreateClearStatus: {foreground}, facets.RecreateResync: {foreground}, "": nil,
	} {
		p := newPair(t, facets.Managed, func(_, spoke *facets.Options) { spoke.AdoptionPolicy.Recreate = policy })
		record(t, p.hub.Applications, p.hubAPI.put(onHub(finalizers...)))
		require.NoError(t, p.send(facets.Application, "guestbook"))
		p.loses("guestbook")
		require.Empty(t, p.reports)
		for range 2 {
			require.NoError(t, p.send(facets.Application, "guestbook"))
		}
		if finalizers == nil || policy == facets.RecreateResync {
			require.Empty(t, p.reports, policy)
		} else {
			require.Equal(t, []reported{{"", "Application", "guestbook", converge.Result{Reason: "pruned"}}}, p.reports)
		}
	}
}

// loses deletes an application on the spoke as another client does, and reports that to the agent.
func (p *pair) loses(name string) {
	p.Helper()
	p.spokeAPI.mu.Lock()
	maps.DeleteFunc(p.spokeAPI.objects, func(at string, _ *stored) bool { return at == pathOf("Application", "argocd", name) })
	p.spokeAPI.mu.Unlock()
	app, ok := p.spoke.Store.Get(types.NamespacedName{Namespace: "argocd", Name: name})
	require.True(p, ok)
	p.there.Gone(app)
	p.spoke.Store.RecordDelete(app.Name, app)
}

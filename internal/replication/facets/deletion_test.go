package facets_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

const (
	foreground = argocd.FinalizerCascade
	background = argocd.FinalizerCascade + "/background"
	postDelete = "post-delete-finalizer.argocd.argoproj.io"
)

// onSpoke is a spoke's application that came from the hub.
func onSpoke(finalizers ...string) argocd.Application {
	return argocd.Application{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "argocd", Name: "guestbook", UID: "on-spoke", Finalizers: finalizers,
			Annotations: map[string]string{argocd.AnnotationSourceUID: "on-hub"},
		},
		Spec: json.RawMessage(`{"project":"default"}`),
	}
}

// onHub is the hub's.
func onHub(finalizers ...string) argocd.Application {
	return argocd.Application{
		ObjectMeta: metav1.ObjectMeta{Namespace: "berlin", Name: "guestbook", UID: "on-hub", Finalizers: finalizers},
		Spec:       json.RawMessage(`{"project":"default"}`),
	}
}

func deleting(a argocd.Application) argocd.Application {
	a.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return a
}

// deletion is what the hub sends of an application that is being deleted with these finalizers.
func deletion(t *testing.T, finalizers ...string) converge.Object {
	t.Helper()
	server := newAPIServer(t)
	hub := server.hub(t)
	record(t, hub.Applications, server.put(deleting(onHub(append(finalizers, "example.com/held")...))))
	object, ok := facets.ApplicationSource{Side: hub}.Project("guestbook")
	require.True(t, ok)
	return object
}

// Whoever deletes on the hub with a cascade adds the finalizer and then deletes. The spoke may hear of both at once.
func TestDeletionSetsFinalizersOfTheSource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there, sent []string
		writes      []string
	}{
		"as it is":         {[]string{foreground}, []string{foreground}, []string{"delete with [" + foreground + "]"}},
		"neither has any":  {nil, nil, []string{"delete with []"}},
		"added":            {nil, []string{foreground}, []string{"patch to [" + foreground + "]", "delete with [" + foreground + "]"}},
		"another":          {[]string{foreground}, []string{background}, []string{"patch to [" + background + "]", "delete with [" + background + "]"}},
		"taken away":       {[]string{foreground}, nil, []string{"patch to []", "delete with []"}},
		"others stay":      {[]string{postDelete}, []string{foreground}, []string{"patch to [" + postDelete + " " + foreground + "]", "delete with [" + postDelete + " " + foreground + "]"}},
		"in another order": {[]string{foreground, background}, []string{background, foreground}, []string{"patch to [" + background + " " + foreground + "]", "delete with [" + background + " " + foreground + "]"}},
		"among others":     {[]string{background, postDelete, foreground}, []string{background, foreground}, []string{"delete with [" + background + " " + postDelete + " " + foreground + "]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
			record(t, replica.Applications, server.put(onSpoke(c.there...)))
			object := deletion(t, c.sent...)
			held, err := replica.Apply(t.Context(), "guestbook", object)
			require.NoError(t, err)
			require.Equal(t, c.writes, server.takeWrites())
			require.Equal(t, held, replica.Held("guestbook"))
			if server.get("guestbook") == nil {
				require.Zero(t, held)
				return
			}
			require.Equal(t, object.State, held, "a deletion under way is what was asked for")
			// What holds it goes, one after the other: nothing is to be done about that.
			record(t, replica.Applications, server.put(deleting(onSpoke("example.com/held"))))
			require.Equal(t, object.State, replica.Held("guestbook"))
			held, err = replica.Apply(t.Context(), "guestbook", object)
			require.NoError(t, err)
			require.Equal(t, object.State, held)
			require.Empty(t, server.takeWrites())
		})
	}
}

// The agent's view of the spoke is always late. What is deleted is what has the right finalizers, and not what had them.
func TestDeletionHasResourceVersionPrecondition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known, there argocd.Application
		delete       func(*testing.T, facets.ApplicationReplica) (converge.State, error)
		writes       []string
	}{
		"with its resources": {onSpoke(foreground), onSpoke(), func(t *testing.T, r facets.ApplicationReplica) (converge.State, error) {
			t.Helper()
			return r.Apply(t.Context(), "guestbook", deletion(t, foreground))
		}, []string{"patch to [" + foreground + "]", "delete with [" + foreground + "]"}},
		"without its resources": {onSpoke(), onSpoke(foreground), func(t *testing.T, r facets.ApplicationReplica) (converge.State, error) {
			t.Helper()
			return r.Remove(t.Context(), "guestbook", "on-hub")
		}, []string{"patch to []", "delete with []"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := newAPIServer(t)
			replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
			record(t, replica.Applications, server.put(c.known))
			server.put(c.there)
			_, err := c.delete(t, replica)
			require.NoError(t, err)
			require.Equal(t, c.writes, server.takeWrites())
		})
	}
}

func TestDeletionSparesApplicationOfAnotherUID(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
	other := onSpoke()
	other.Annotations = map[string]string{argocd.AnnotationSourceUID: "another"}
	record(t, replica.Applications, server.put(other))
	held, err := replica.Apply(t.Context(), "guestbook", deletion(t, foreground))
	require.NoError(t, err)
	require.Zero(t, held, "nothing is left of the one that is meant")
	held, err = replica.Remove(t.Context(), "guestbook", "on-hub")
	require.NoError(t, err)
	require.Equal(t, "another", held.UID)
	require.Empty(t, server.takeWrites())
}

// Who takes the annotations away that say where an application comes from does not keep it from being deleted with the hub's.
func TestDeletionWithoutSourceAnnotations(t *testing.T) {
	t.Parallel()
	hubs := newAPIServer(t)
	hub := hubs.hub(t)
	record(t, hub.Applications, hubs.put(onHub()))
	wanted, ok := facets.ApplicationSource{Side: hub}.Project("guestbook")
	require.True(t, ok)
	for name, remove := range map[string]func(facets.ApplicationReplica) (converge.State, error){
		"cascading": func(r facets.ApplicationReplica) (converge.State, error) {
			return r.Apply(t.Context(), "guestbook", deletion(t, foreground))
		},
		"gone": func(r facets.ApplicationReplica) (converge.State, error) {
			return r.Remove(t.Context(), "guestbook", "on-hub")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			replica := facets.NewApplicationReplica(server.spoke(t), facets.AdoptionPolicy{})
			_, err := replica.Apply(t.Context(), "guestbook", wanted)
			require.NoError(t, err)
			wiped := *server.get("guestbook")
			wiped.Annotations = nil
			record(t, replica.Applications, server.put(wiped))
			require.Zero(t, replica.Held("guestbook"))
			_, err = remove(replica)
			require.NoError(t, err)
			require.Contains(t, strings.Join(server.takeWrites(), " "), "delete")

			// One that somebody made since by that name is not touched.
			wiped.UID = "another"
			record(t, replica.Applications, server.put(wiped))
			_, err = remove(replica)
			if name == "cascading" {
				require.ErrorIs(t, err, converge.ErrRefused)
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, server.takeWrites())
		})
	}
}

// Between the finalizers and the deletion the agent may end. Whoever starts then does not take what it finds for what the hub
// wanted.
func TestTerminatingApplicationIsNotRestored(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	hub := server.hub(t)
	record(t, hub.Applications, server.put(onHub()))
	wanted, ok := facets.ApplicationSource{Side: hub}.Project("guestbook")
	require.True(t, ok)

	spoke := newAPIServer(t)
	replica := facets.NewApplicationReplica(spoke.spoke(t), facets.AdoptionPolicy{})
	_, err := replica.Apply(t.Context(), "guestbook", wanted)
	require.NoError(t, err)
	recalled, ok := replica.Recall("guestbook")
	require.True(t, ok)
	require.Equal(t, wanted, recalled)

	halfway := *spoke.get("guestbook")
	halfway.Finalizers = []string{foreground}
	record(t, replica.Applications, spoke.put(halfway))
	_, ok = replica.Recall("guestbook")
	require.False(t, ok)
	spoke.takeWrites()
	_, err = replica.Apply(t.Context(), "guestbook", deletion(t, foreground))
	require.NoError(t, err)
	require.Equal(t, []string{"delete with [" + foreground + "]"}, spoke.takeWrites())
	_, ok = replica.Recall("guestbook")
	require.False(t, ok)
}

func TestHubFinalizersAreRemovedOnceSpokeIsGone(t *testing.T) {
	t.Parallel()
	server := newAPIServer(t)
	source := facets.ApplicationSource{Side: server.hub(t)}
	record(t, source.Applications, server.put(deleting(onHub(foreground, "example.com/held"))))
	before, _ := source.Project("guestbook")
	require.NoError(t, source.ReportResult(t.Context(), "guestbook", converge.Result{Code: converge.Done, Absent: true}))
	require.Equal(t, []string{"patch to [example.com/held]"}, server.takeWrites())
	after, ok := source.Project("guestbook")
	require.True(t, ok)
	require.Equal(t, before.State, after.State)
	require.NoError(t, source.ReportResult(t.Context(), "guestbook", converge.Result{Code: converge.Done, Absent: true}))
	require.Empty(t, server.takeWrites())
}

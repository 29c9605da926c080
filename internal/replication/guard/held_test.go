package guard_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/guard"
)

// shownHeld waits for what the ConfigMap is made to show.
func (r *fixture) shownHeld(t *testing.T) []guard.Held {
	t.Helper()
	return guard.ReadHeld(await(t, r.held))
}

// argocd-agentctl shows what is held as long as it is.
func TestHeldDeletionsAreShownUntilTheyAreConfirmed(t *testing.T) {
	r := runs(t, newAPIServer(t))
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{
		Facet: facet, Deletions: 2, Total: 2, Keys: []converge.Key{"guestbook", "team-a/shop"}, Token: "abc",
	})
	held := r.shownHeld(t)
	require.Equal(t, []guard.Held{
		{Agent: "berlin", Facet: facet, Token: "abc", Deletions: 2, Total: 2, Objects: []string{"guestbook", "team-a/shop"}},
	}, held)
	require.Equal(t, "Resync would delete 2 of 2 objects; deletions paused", held[0].Summary())
	line := await(t, r.lines)
	require.Contains(t, line, `objects="guestbook, team-a/shop"`)
	require.Contains(t, await(t, r.events).Message, "(guestbook and 1 more)")
	r.change(t, watch.Added, "abc")
	require.Equal(t, "berlin application abc", await(t, r.confirmed))
	require.Empty(t, r.shownHeld(t))
}

// A namespace takes its objects along one by one. There is one report, of all.
func TestWhatIsTakenAlongIsReportedTogether(t *testing.T) {
	r := runs(t, newAPIServer(t))
	berlin := r.observer("berlin")
	var keys []converge.Key
	for _, key := range []converge.Key{"a", "b", "c"} {
		keys = append(keys, key)
		berlin.DeletionsPaused(converge.PausedDeletions{
			Facet: facet, Deletions: len(keys), Total: 9, TakenAlong: len(keys), Keys: keys, Token: "abc" + string(key),
		})
	}
	message := await(t, r.events).Message
	require.Contains(t, message, "The deletion of a namespace or CustomResourceDefinition would delete 3 of 9 objects of berlin.application; deletions paused")
	require.Contains(t, message, "=abcc ")
	require.Empty(t, r.events)
}

// What an agent says it has need not be names.
func TestKeysThatAnAgentMadeUpAreShownAsText(t *testing.T) {
	r := runs(t, newAPIServer(t))
	keys := []converge.Key{"a\nlevel=ERROR msg=forged", converge.Key("b" + strings.Repeat("x", 1<<20)), "c"}
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 3, Total: 3, Keys: keys, Token: "abc"})
	held := r.shownHeld(t)
	require.Len(t, held, 1)
	require.Equal(t, `"a\nlevel=ERROR msg=forged"`, held[0].Objects[0])
	require.Less(t, len(held[0].Objects[1]), 400)
	require.Equal(t, "c", held[0].Objects[2])
	line := await(t, r.lines)
	require.Less(t, len(line), 2000)
	require.Less(t, len(await(t, r.events).Message), 1000)
}

// A principal that starts writes nothing while nothing is held, or was.
func TestNothingIsWrittenWhileNothingWasHeld(t *testing.T) {
	for name, there := range map[string]bool{"never": false, "any more": true} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			server.hasHeld.Store(there)
			r := runs(t, server)
			require.Equal(t, there, await(t, r.heldGot))
			berlin := r.observer("berlin")
			berlin.DeletionsResumed(facet)
			paused := converge.PausedDeletions{Facet: facet, Deletions: 1, Total: 1, Token: "abc"}
			berlin.DeletionsPaused(paused)
			require.Len(t, r.shownHeld(t), 1, "and not what was there")
			berlin.DeletionsPaused(paused) // is not another
			paused.Token = "def"
			berlin.DeletionsPaused(paused)
			require.Equal(t, "def", r.shownHeld(t)[0].Token)
			require.Empty(t, r.heldGot, "it knows what it wrote")
		})
	}
}

// What an earlier life of the principal showed is shown no longer.
func TestWhatIsNoLongerHeldIsNotShown(t *testing.T) {
	server := newAPIServer(t)
	server.hasHeld.Store(true)
	server.showed = map[string]string{"berlin.application": "{}"}
	require.Empty(t, await(t, runs(t, server).held))
}

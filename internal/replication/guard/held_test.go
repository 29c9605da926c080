package guard_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
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

// A principal writes nothing while nothing is held, or what is held is shown already.
func TestNothingIsWrittenThatIsShown(t *testing.T) {
	for name, before := range map[string]map[string]string{"there is none": nil, "it shows nothing": {}} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t)
			if before != nil {
				server.show(before)
			}
			r := runs(t, server)
			berlin, paused := r.observer("berlin"), converge.PausedDeletions{Facet: facet, Deletions: 1, Total: 1, Token: "abc"}
			berlin.Compared(facet)
			berlin.DeletionsResumed(facet)
			berlin.DeletionsPaused(paused)
			require.Equal(t, "abc", r.shownHeld(t)[0].Token)
			berlin.DeletionsPaused(paused) // is not another
			berlin.Compared(facet)
			paused.Token = "def"
			berlin.DeletionsPaused(paused)
			require.Equal(t, "def", r.shownHeld(t)[0].Token)
			r.requireUnchanged(t)
		})
	}
}

// What an earlier life of the principal showed stays until the agent is back, and then only what is still held.
func TestWhatIsNoLongerHeldIsShownUntilTheAgentIsBack(t *testing.T) {
	server := newAPIServer(t)
	server.show(map[string]string{"berlin.application": heldOf("berlin", "old"), "berlin.appproject": heldOf("berlin", "old"), "paris.application": heldOf("paris", "old")})
	r := runs(t, server)
	berlin := r.observer("berlin")
	berlin.DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 1, Total: 1, Token: "abc"})
	berlin.Compared(facet)
	require.Equal(t, []string{"berlin abc", "berlin old", "paris old"}, tokens(await(t, r.held)))
	berlin.Compared("appproject")
	require.Equal(t, []string{"berlin abc", "paris old"}, tokens(await(t, r.held)))
	r.requireUnchanged(t)
}

// heldOf is the value of a key.
func heldOf(agent, token string) string {
	return `{"agent":"` + agent + `","facet":"application","token":"` + token + `","deletions":1,"total":1}`
}

// tokens are the values of keys, by agent, in the order of the keys.
func tokens(data map[string]string) []string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var h guard.Held
		if json.Unmarshal([]byte(data[key]), &h) == nil {
			all = append(all, h.Agent+" "+h.Token)
		}
	}
	return all
}

// Of an agent that is gone for good nothing is shown: neither what an earlier life of the principal held, nor what this one does.
func TestNothingIsShownOfAgentsThatAreGone(t *testing.T) {
	var gone sync.Map
	gone.Store("gone", true)
	server := newAPIServer(t)
	server.show(map[string]string{"gone.application": heldOf("gone", "old"), "berlin.application": heldOf("berlin", "old"), "nonsense": "{}"})
	r := runsAs(t, server, guard.Shared{
		Elsewhere: func(string) bool { return false }, Wait: func(context.Context) bool { return true },
		Known: func(agent string) bool { _, is := gone.Load(agent); return !is && agent != "nonsense" },
	})
	require.Equal(t, []string{"berlin old"}, tokens(await(t, r.held)))
	r.controller.SetCluster("berlin", "https://berlin")
	r.controller.RemoveCluster("berlin") // which is connected all the same
	gone.Store("berlin", true)
	r.controller.RemoveCluster("berlin")
	require.Empty(t, await(t, r.held))
	r.requireUnchanged(t)
}

// Each of several principals writes the keys of its own agents. Whoever gets an agent shows what is held of it from then on.
func TestEachPrincipalShowsItsOwnAgents(t *testing.T) {
	server, serves := newAPIServer(t), new(sync.Map) // which principal serves an agent
	server.first = server.configMap("given")
	principal := func(name string) *fixture {
		return runsAs(t, server, guard.Shared{
			Elsewhere: func(agent string) bool { by, _ := serves.Load(agent); return by != name },
			Known:     func(string) bool { return true }, Wait: func(context.Context) bool { return true },
		})
	}
	first, second := principal("first"), principal("second")
	paused := func(r *fixture, agent, token string) {
		r.observer(agent).DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 1, Total: 1, Token: token})
	}
	serves.Store("berlin", "first")
	serves.Store("paris", "second")
	paused(first, "berlin", "abc")
	require.Equal(t, []string{"berlin abc"}, tokens(await(t, server.held)))
	paused(second, "paris", "def")
	require.Equal(t, []string{"berlin abc", "paris def"}, tokens(await(t, server.held)))
	serves.Store("berlin", "second")
	paused(second, "berlin", "ghi")
	require.Equal(t, []string{"berlin ghi", "paris def"}, tokens(await(t, server.held)))
	first.observer("berlin").DeletionsResumed(facet) // it forgets the agent
	paused(first, "berlin", "late")
	serves.Store("tokyo", "first")
	paused(first, "tokyo", "jkl")
	require.Equal(t, []string{"berlin ghi", "paris def", "tokyo jkl"}, tokens(await(t, server.held)))

	// A token that somebody gives lets go what whoever serves the agent holds.
	paused(second, "berlin", "given")
	require.Equal(t, "berlin application given", await(t, second.confirmed))
	require.Equal(t, []string{"paris def", "tokyo jkl"}, tokens(await(t, server.held)))
	require.Empty(t, first.confirmed)
}

// Somebody deleted the ConfigMap: all of it is there again.
func TestAllIsShownAgainAfterTheConfigMapIsDeleted(t *testing.T) {
	server := newAPIServer(t)
	r := runs(t, server)
	for _, agent := range []string{"berlin", "paris"} {
		r.observer(agent).DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 1, Total: 1, Token: "abc"})
		await(t, r.held)
	}
	server.show(nil)
	require.Equal(t, []string{"berlin abc", "paris abc"}, tokens(await(t, r.held)))
}

// A token that is given while the agent is away is taken when it is back, although the same is held as before.
func TestDeletionsConfirmedWhileTheAgentIsAwayGoWhenItIsBack(t *testing.T) {
	r := runs(t, newAPIServer(t))
	berlin := r.observer("berlin")
	berlin.DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 1, Total: 1, Token: "abc"})
	require.Len(t, r.shownHeld(t), 1)
	r.away.Store(true)
	r.change(t, watch.Added, "abc")
	require.Equal(t, "berlin application abc", await(t, r.confirmed))
	r.away.Store(false)
	berlin.Compared(facet)
	require.Equal(t, "berlin application abc", await(t, r.confirmed))
	require.Empty(t, r.shownHeld(t))
}

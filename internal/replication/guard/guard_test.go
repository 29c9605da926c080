package guard_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

const facet = converge.Facet("application")

func TestPausedDeletionsAreReportedOnceWithTheCommand(t *testing.T) {
	r := runs(t, newAPIServer(t))
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 11, Total: 20, Token: "abc"})
	require.Equal(t, "paused abc", await(t, r.passed))

	const command = "kubectl -n argocd create configmap argocd-agent-deletion-guard --from-literal=berlin.application=abc" +
		" --dry-run=client -o yaml | kubectl -n argocd apply --server-side --force-conflicts --field-manager=abc -f -"
	line := await(t, r.lines)
	require.Contains(t, line, "level=ERROR")
	require.Contains(t, line, "facet=application agent=berlin token=abc")
	require.Contains(t, line, `confirm_with="`+command+`"`, "as it can be copied")
	event := await(t, r.events)
	require.Equal(t, "Resync would delete 11 of 20 objects of berlin.application; deletions paused. To allow exactly these, run: "+command, event.Message)
	require.Equal(t, corev1.EventTypeWarning, event.Type)
	require.Equal(t, "DeletionsPaused", event.Reason)
	require.Equal(t, "principal", event.Source.Component)
	require.Equal(t, "argocd-agent-deletion-guard", event.InvolvedObject.Name)
	require.Equal(t, "argocd-agent-deletion-guard-", event.GenerateName)

	// Another pause wakes the controller, and is all that it reports then.
	r.observer("").DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 12, Total: 20, Token: "def"})
	require.Contains(t, await(t, r.events).Message, "12 of 20 objects of application; deletions paused")
	r.observer("paris").DeletionsPaused(converge.PausedDeletions{Facet: facet, Deletions: 13, Total: 20, Token: "ghi"})
	require.Contains(t, await(t, r.events).Message, "13 of 20 objects of paris.application; deletions paused")
	require.Empty(t, r.events)
}

func TestTokenConfirmsItsDeletionsAndNoOthers(t *testing.T) {
	r := runs(t, newAPIServer(t))
	for agent, token := range map[string]string{"berlin": "abc", "paris": "def"} {
		r.observer(agent).DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: token})
	}
	await(t, r.events)
	await(t, r.events)
	r.change(t, watch.Added, "wrong", "ABC")
	r.change(t, watch.Modified, "wrong", "abc")
	require.Equal(t, "berlin application abc", await(t, r.confirmed))
	r.change(t, watch.Modified, "wrong", "abc", "def")
	require.Equal(t, "paris application def", await(t, r.confirmed))
	require.Empty(t, r.confirmed)
	require.Empty(t, r.events)
}

func TestTokenThatIsThereAlreadyConfirmsAtOnce(t *testing.T) {
	server := newAPIServer(t)
	server.first = server.configMap("abc")
	r := runs(t, server)
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "abc"})
	require.Equal(t, "berlin application abc", await(t, r.confirmed))
}

func TestTokenThatWasRemovedConfirmsNothing(t *testing.T) {
	server := newAPIServer(t)
	server.first = server.configMap("early", "late")
	r := runs(t, server)
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "early"})
	require.Equal(t, "berlin application early", await(t, r.confirmed))
	r.change(t, watch.Deleted)
	r.change(t, watch.Added, "now")
	r.observer("paris").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "now"})
	require.Equal(t, "paris application now", await(t, r.confirmed))
	for len(r.events) > 0 {
		<-r.events
	}
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "late"})
	require.Contains(t, await(t, r.events).Message, "berlin.application=late")
	require.Empty(t, r.confirmed)
}

func TestNothingIsConfirmedOnceDeletionsAreResumed(t *testing.T) {
	r := runs(t, newAPIServer(t))
	berlin := r.observer("berlin")
	berlin.DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "abc"})
	await(t, r.events)
	berlin.DeletionsResumed(facet)
	require.Equal(t, "paused abc", await(t, r.passed))
	require.Equal(t, "resumed application", await(t, r.passed))
	r.observer("paris").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "def"})
	r.change(t, watch.Added, "abc", "def")
	require.Equal(t, "paris application def", await(t, r.confirmed))
	r.observer("tokyo").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "ghi"})
	r.change(t, watch.Modified, "abc", "def", "ghi")
	require.Equal(t, "tokyo application ghi", await(t, r.confirmed))
	require.Empty(t, r.confirmed)
}

func TestNewTokenIsReportedAnew(t *testing.T) {
	r := runs(t, newAPIServer(t))
	berlin := r.observer("berlin")
	berlin.DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "abc"})
	require.Contains(t, await(t, r.events).Message, "=abc")
	berlin.DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "def"})
	require.Contains(t, await(t, r.events).Message, "=def")
	r.change(t, watch.Added, "abc")
	r.change(t, watch.Modified, "def")
	require.Equal(t, "berlin application def", await(t, r.confirmed))
}

func TestAnEventThatCannotBeWrittenIsLogged(t *testing.T) {
	server := newAPIServer(t)
	server.denied = true
	r := runs(t, server)
	r.observer("berlin").DeletionsPaused(converge.PausedDeletions{Facet: facet, Token: "abc"})
	require.Contains(t, await(t, r.lines), "deletions paused")
	require.Contains(t, await(t, r.lines), "Failed to create Event")
	r.change(t, watch.Added, "abc")
	require.Equal(t, "berlin application abc", await(t, r.confirmed))
}

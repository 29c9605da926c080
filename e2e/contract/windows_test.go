package contract_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/settings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/glob"
)

// skipRefused passes over a project with globs that would take too long to match: it is refused.
func skipRefused(t tb, err error) {
	if errors.Is(err, glob.ErrTooComplex) {
		t.Skip(err)
	}
}

// someWindows are sync windows that are known by their descriptions.
func someWindows() *rapid.Generator[v1alpha1.SyncWindows] {
	patterns := func(g *rapid.Generator[string]) *rapid.Generator[[]string] { return rapid.SliceOfN(g, 0, 2) }
	window := rapid.Custom(func(t *rapid.T) *v1alpha1.SyncWindow {
		return &v1alpha1.SyncWindow{
			Kind: "deny", Schedule: "* * * * *", Duration: "1h",
			Applications:   patterns(aPattern()).Draw(t, "applications"),
			Clusters:       patterns(rapid.OneOf(aPattern(), anAddress())).Draw(t, "clusters"),
			Namespaces:     patterns(aPattern()).Draw(t, "namespaces"),
			UseAndOperator: rapid.Bool().Draw(t, "and"),
		}
	})
	return rapid.Custom(func(t *rapid.T) v1alpha1.SyncWindows {
		windows := v1alpha1.SyncWindows(rapid.SliceOfN(window, 1, 3).Draw(t, "windows"))
		for i, w := range windows {
			w.Description = fmt.Sprint(i)
		}
		return windows
	})
}

// matching returns, for each window, whether it is for an application with one of some destinations.
func matching(t *rapid.T, windows v1alpha1.SyncWindows, name string, destinations ...v1alpha1.ApplicationDestination) map[string]bool {
	defer skipPanics(t)
	out := make(map[string]bool)
	for _, d := range destinations {
		app := &v1alpha1.Application{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ApplicationSpec{Destination: d}}
		if found := windows.Matches(app); found != nil {
			for _, w := range *found {
				out[w.Description] = true
			}
		}
	}
	return out
}

func byName(name, namespace string) v1alpha1.ApplicationDestination {
	return v1alpha1.ApplicationDestination{Name: name, Namespace: namespace}
}

func byServer(server, namespace string) v1alpha1.ApplicationDestination {
	return v1alpha1.ApplicationDestination{Server: server, Namespace: namespace}
}

// windowsByAgent are windows in which addresses that name agents are those of the agents that they name.
func windowsByAgent(t *rapid.T, windows v1alpha1.SyncWindows, agent string) v1alpha1.SyncWindows {
	defer skipPanics(t)
	var out v1alpha1.SyncWindows
	for _, w := range windows {
		w = w.DeepCopy()
		for i, c := range w.Clusters {
			w.Clusters[i] = plainAddress(agent, c)
		}
		out = append(out, w)
	}
	return out
}

// plainAddress is addressFor where nothing denies.
func plainAddress(agent, address string) string {
	if denies(address) {
		return address
	}
	return addressFor(agent, address, true)
}

// A window of the hub's that is for an application by its agent's name, or by its cluster's address, is for the agent's copy.
// Windows go by the address that names an agent too, whatever the rest of it is.
func TestSyncWindowIsForTheSameApplicationsOnTheSpoke(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agent, app, namespace := anAgent().Draw(t, "agent"), aName().Draw(t, "application"), aNamespace().Draw(t, "namespace")
		windows, server := someWindows().Draw(t, "windows"), argocd.ClusterServer(proxy, agent)
		spec := v1alpha1.AppProjectSpec{
			SourceNamespaces: []string{"*"}, Destinations: []v1alpha1.ApplicationDestination{byName("*", "*")}, SyncWindows: windows,
		}
		record := argocd.ReduceObject(&argocd.Object{Spec: encoded(t, spec)}, nil)
		content, is := record.ForAgent(argocd.Recipient{Agent: agent, Server: server, Namespace: agent})
		require.True(t, is)
		copied := decoded[v1alpha1.AppProjectSpec](t, content.Spec).SyncWindows

		hub := matching(t, windowsByAgent(t, windows, agent), app, byName(agent, namespace), byServer(server, namespace))
		for _, destination := range []v1alpha1.ApplicationDestination{byName(inCluster, namespace), byServer(inClusterServer, namespace)} {
			require.Equal(t, hub, matching(t, copied, app, destination))
		}
	})
}

// So it is for a window of an autonomous agent's own project, on the hub.
func TestMirroredSyncWindowIsForTheSameApplications(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agent, app, namespace := anAgent().Draw(t, "agent"), aName().Draw(t, "application"), aNamespace().Draw(t, "namespace")
		windows := someWindows().Draw(t, "windows")
		content, err := argocd.MirrorProject(agent, argocd.MirrorRules{}, "own", argocd.Content{Spec: encoded(t, v1alpha1.AppProjectSpec{SyncWindows: windows})})
		skipRefused(t, err)
		require.NoError(t, err)
		mirrored := decoded[v1alpha1.AppProjectSpec](t, content.Spec).SyncWindows

		spoke := matching(t, windows, app, byName(inCluster, namespace), byServer(inClusterServer, namespace))
		require.Equal(t, spoke, matching(t, mirrored, app, byName(agent, namespace)))
	})
}

// serviceAccount is the account that Argo CD syncs with.
func serviceAccount(t *rapid.T, accounts []v1alpha1.ApplicationDestinationServiceAccount, server, namespace string) string {
	defer skipPanics(t)
	account, err := settings.DeriveServiceAccountToImpersonate(
		&v1alpha1.AppProject{Spec: v1alpha1.AppProjectSpec{DestinationServiceAccounts: accounts}},
		&v1alpha1.Application{Spec: v1alpha1.ApplicationSpec{Destination: byServer(server, namespace)}},
		&v1alpha1.Cluster{Server: server})
	if err != nil {
		t.Skip(err) // then nothing is synced
	}
	return account
}

// someAccounts are service accounts for destinations.
func someAccounts() *rapid.Generator[[]v1alpha1.ApplicationDestinationServiceAccount] {
	account := rapid.Custom(func(t *rapid.T) v1alpha1.ApplicationDestinationServiceAccount {
		return v1alpha1.ApplicationDestinationServiceAccount{
			Server: anAddress().Draw(t, "server"), Namespace: aPattern().Draw(t, "namespaces"),
			DefaultServiceAccount: rapid.SampledFrom([]string{"one", "two"}).Draw(t, "account"),
		}
	})
	return rapid.SliceOfN(account, 1, 3)
}

func TestServiceAccountIsTheSameOnTheSpoke(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		defer skipPanics(t)
		agent, namespace, accounts := anAgent().Draw(t, "agent"), aNamespace().Draw(t, "namespace"), someAccounts().Draw(t, "accounts")
		server := argocd.ClusterServer(proxy, agent)
		spec := v1alpha1.AppProjectSpec{
			SourceNamespaces: []string{"*"}, Destinations: []v1alpha1.ApplicationDestination{byName("*", "*")}, DestinationServiceAccounts: accounts,
		}
		record := argocd.ReduceObject(&argocd.Object{Spec: encoded(t, spec)}, nil)
		content, is := record.ForAgent(argocd.Recipient{Agent: agent, Server: server, Namespace: agent})
		require.True(t, is)
		copied := decoded[v1alpha1.AppProjectSpec](t, content.Spec).DestinationServiceAccounts
		for i, a := range accounts {
			accounts[i].Server = plainAddress(agent, a.Server)
		}
		require.Equal(t, serviceAccount(t, accounts, server, namespace), serviceAccount(t, copied, inClusterServer, namespace))
	})
}

package contract_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/glob"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// A question is whether a project permits a namespace of an agent's cluster.
type question struct {
	agent, namespace string
	destinations     []v1alpha1.ApplicationDestination
}

func (q question) spec() v1alpha1.AppProjectSpec {
	return v1alpha1.AppProjectSpec{SourceNamespaces: []string{"*"}, Destinations: q.destinations}
}

func (q question) server() string { return argocd.ClusterServer(proxy, q.agent) }

// anAgent is the name of an agent. On the hub another cluster is called in-cluster.
func anAgent() *rapid.Generator[string] {
	return aName().Filter(func(name string) bool { return name != inCluster })
}

func aQuestion() *rapid.Generator[question] {
	return rapid.Custom(func(t *rapid.T) question {
		destination := rapid.Custom(func(t *rapid.T) v1alpha1.ApplicationDestination {
			d := v1alpha1.ApplicationDestination{Namespace: aPattern().Draw(t, "namespaces")}
			kind := rapid.IntRange(0, 4).Draw(t, "by")
			if kind < 3 {
				d.Name = aPattern().Draw(t, "name")
			}
			if kind > 1 {
				d.Server = anAddress().Draw(t, "server")
			}
			return d
		})
		return question{
			agent:        anAgent().Draw(t, "agent"),
			namespace:    aNamespace().Draw(t, "namespace"),
			destinations: rapid.SliceOfN(destination, 1, 4).Draw(t, "destinations"),
		}
	})
}

// denies reports whether a pattern denies what it does not match.
func denies(pattern string) bool { return strings.HasPrefix(pattern, "!") }

// copyFor is the project of a question as its agent gets it, nil if it does not.
func (q question) copyFor(t tb) *v1alpha1.AppProject {
	record := argocd.ReduceObject(&argocd.Object{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: encoded(t, q.spec())}, nil)
	recipient := argocd.Recipient{Agent: q.agent, Server: q.server(), Namespace: q.agent}
	content, is := record.ForAgent(recipient)
	require.Equal(t, is, record.IsFor(recipient))
	if !is {
		return nil
	}
	return &v1alpha1.AppProject{Spec: decoded[v1alpha1.AppProjectSpec](t, content.Spec)}
}

// hubPermits is Argo CD's answer on the hub.
func (q question) hubPermits(t tb) bool {
	defer skipPanics(t)
	return permits(t, v1alpha1.AppProject{Spec: q.byAgent().spec()}, q.agent, q.server(), q.namespace)
}

// spokePermits is Argo CD's answer on the spoke, by the project that the agent gets.
func (q question) spokePermits(t tb) bool {
	project := q.copyFor(t)
	return project != nil && permits(t, *project, inCluster, inClusterServer, q.namespace)
}

// stricterHere says why ours may deny what Argo CD permits on the hub, empty if it may not.
func (q question) stricterHere() string {
	for _, d := range q.destinations {
		switch {
		case denies(d.Name) && d.Server != "", denies(d.Server) && d.Name != "":
			return "a denial holds whatever else the same destination says"
		}
	}
	return ""
}

// byAgent is a question in which addresses that name agents are those of the agents that they name.
func (q question) byAgent() question {
	destinations := slices.Clone(q.destinations)
	for i, d := range destinations {
		if address, denied := strings.CutPrefix(d.Server, "!"); denied {
			destinations[i].Server = "!" + addressFor(q.agent, address, false)
		} else {
			destinations[i].Server = addressFor(q.agent, address, true)
		}
	}
	q.destinations = destinations
	return q
}

// addressFor returns, of a pattern for addresses that names agents, as https://proxy?agentName=b* does, the address of the agent if it
// names that one, and of nobody if not. Ours goes by that name: the rest of an address changes with the resource proxy. Where it may,
// it also goes by the whole address.
func addressFor(agent, address string, orWhole bool) string {
	_, query, _ := strings.Cut(address, "?")
	values, err := url.ParseQuery(query)
	server := argocd.ClusterServer(proxy, agent)
	switch {
	case err != nil || values.Get("agentName") == "" || orWhole && glob.Match(address, server):
		return address
	case glob.Match(values.Get("agentName"), agent):
		return server
	}
	return "https://nobody"
}

func compareForAgent(t tb, q question) {
	hub, spoke := q.hubPermits(t), q.spokePermits(t)
	if spoke {
		require.True(t, hub, "more than on the hub: %+v", q)
	}
	if hub && q.stricterHere() == "" {
		require.True(t, spoke, "less than on the hub: %+v", q)
	}
}

// What a project of the hub permits in an agent's cluster, its copy permits in the cluster where it is, and nothing else.
func TestProjectPermitsTheSameOnTheSpoke(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		compareForAgent(t, q)
	})
}

// The copy permits nothing in other clusters that the spoke's Argo CD may have, unless it has to deny namespaces of the address of
// its own: Argo CD reads that as a permission for all other clusters.
func TestProjectOnTheSpokePermitsNoOtherCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		deniesAddress := slices.ContainsFunc(q.destinations, func(d v1alpha1.ApplicationDestination) bool { return denies(d.Server) })
		if project := q.copyFor(t); project != nil && !deniesAddress {
			require.False(t, permits(t, *project, "elsewhere", "https://elsewhere", q.namespace), "%+v", q)
		}
	})
}

// Credentials follow projects, so only a project that permits something in a cluster is for its agent.
func TestProjectThatPermitsNothingOnTheHubIsForNoAgent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		if q.hubPermits(t) && q.stricterHere() == "" {
			require.NotNil(t, q.copyFor(t), "%+v", q)
		}
	})
}

// mirror is the project of a question, of its agent's own, as the hub shows it.
func (q question) mirror(t tb) v1alpha1.AppProject {
	content, err := argocd.MirrorProject(q.agent, argocd.MirrorRules{}, "own", argocd.Content{Spec: encoded(t, q.spec())})
	skipRefused(t, err)
	require.NoError(t, err)
	return v1alpha1.AppProject{Spec: decoded[v1alpha1.AppProjectSpec](t, content.Spec)}
}

// stricterMirrored says why the hub may deny what an autonomous agent's project permits, empty if it may not.
func (q question) stricterMirrored() string {
	if why := q.stricterHere(); why != "" {
		return why
	}
	for _, d := range q.destinations {
		switch {
		case denies(d.Server) && denies(d.Namespace):
			return "a denial in all namespaces but some is one in all"
		case denies(d.Server):
			return "of some namespaces, those are left out that the denial of an address may be about"
		case denies(d.Namespace):
			return "so are those that a denial of namespaces may be about, and one that cannot stand between braces with others denies all"
		}
	}
	return ""
}

func compareMirrored(t tb, q question) {
	spoke := permits(t, v1alpha1.AppProject{Spec: q.spec()}, inCluster, inClusterServer, q.namespace)
	hub := permits(t, q.mirror(t), q.agent, q.server(), q.namespace)
	if hub {
		require.True(t, spoke, "more than on the spoke: %+v becomes %+v", q, q.mirror(t).Spec.Destinations)
	}
	if spoke && q.stricterMirrored() == "" {
		require.True(t, hub, "less than on the spoke: %+v becomes %+v", q, q.mirror(t).Spec.Destinations)
	}
}

// What an autonomous agent's project permits in its own cluster, the hub's permits in the agent's, and nothing else.
func TestMirroredProjectPermitsTheSameOnTheHub(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		compareMirrored(t, q)
	})
}

// On the hub no project of an agent's permits anything in the clusters of others.
func TestMirroredProjectPermitsNoOtherCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := aQuestion().Draw(t, "question")
		project := q.mirror(t)
		other := anAgent().Filter(func(name string) bool { return name != q.agent }).Draw(t, "other")
		require.False(t, permits(t, project, other, argocd.ClusterServer(proxy, other), q.namespace), "%+v", q)
		require.False(t, permits(t, project, inCluster, inClusterServer, q.namespace), "%+v", q)
	})
}

// What generated inputs found, and what was known to differ.
func TestProjectCornerCases(t *testing.T) {
	for name, q := range map[string]question{
		"a star of no length where both ends overlap": {"prod", "x", []v1alpha1.ApplicationDestination{byName("!prod*d", "*"), byServer("*", "*")}},
		"all but a namespace, by name alone":          {"berlin", "x", []v1alpha1.ApplicationDestination{byName("berlin", "!x"), byName("berlin", "*")}},
		"all but a namespace, by address":             {"berlin", "x", []v1alpha1.ApplicationDestination{byServer("*", "!x"), byName("berlin", "*")}},
		"all but the empty namespace":                 {"berlin", "", []v1alpha1.ApplicationDestination{byName("*", "!")}},
		"the empty namespace":                         {"berlin", "", []v1alpha1.ApplicationDestination{byName("*", "")}},
		"a name of an agent that cannot deny":         {"berlin", "x", []v1alpha1.ApplicationDestination{byServer("https://proxy:9090?agentName=!paris", "*")}},
		"denials that begin alike":                    {"berlin", "a", []v1alpha1.ApplicationDestination{byServer("*", "!a*"), byServer("*", "!a")}},
		"denials that end alike":                      {"berlin", "0", []v1alpha1.ApplicationDestination{byServer("*", "!*0"), byServer("*", "!0")}},
		"a denial that closes a brace":                {"berlin", "b", []v1alpha1.ApplicationDestination{byServer("*", "!a}"), byServer("*", "!b")}},
		"a denial with a zero byte":                   {"berlin", "b", []v1alpha1.ApplicationDestination{byServer("*", "!\x00"), byServer("*", "!b")}},
		"a denial that ends in an escape":             {"berlin", "b", []v1alpha1.ApplicationDestination{byServer("*", `!a\`), byServer("*", "!b")}},
		"a pattern that makes the library panic":      {"a", "x", []v1alpha1.ApplicationDestination{byName("a{", "*"), byName("a", "*")}},
	} {
		t.Run(name, func(t *testing.T) {
			compareForAgent(t, q)
			compareMirrored(t, q)
		})
	}
}

package contract_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

// checks is how many inputs are generated for each comparison.
const checks = "3000"

// shardSize makes trees of two resources and more several keys in Redis. Argo CD reads the variable before main.
const shardSize = "ARGOCD_APPLICATION_TREE_SHARD_SIZE"

func TestMain(m *testing.M) {
	if os.Getenv(shardSize) == "" {
		err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), shardSize+"=1"))
		fmt.Fprintln(os.Stderr, "start again:", err)
		os.Exit(1)
	}
	logrus.SetLevel(logrus.PanicLevel) // Argo CD logs each pattern that does not compile
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", checks); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

const (
	inCluster       = "in-cluster"
	inClusterServer = "https://kubernetes.default.svc"
	proxy           = "proxy:9090"
	argocdNamespace = "argocd"
)

// aName is one of some names that overlap, so that a pattern that is meant for one is near to others.
func aName() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"berlin", "b", "ber", "berlin-2", "prod", "prod-d", "kube-system", "in", inCluster, "a0"})
}

// aNamespace is what an application may call a namespace. Argo CD does not demand that it is the name of one.
func aNamespace() *rapid.Generator[string] {
	return rapid.OneOf(aName(), rapid.SampledFrom([]string{"", "PROD", "münchen", "a,b", "a}", "*", "!b"}))
}

// aGlob is a pattern that may match such a name, or be no pattern at all.
func aGlob() *rapid.Generator[string] {
	piece := rapid.SampledFrom([]string{
		"*", "*", "**", "?", "b", "ber", "berlin", "prod", "-", "a", "0", "2", "d", "in", "in-cluster", "kube-system", "[a-z]", "[!b]", "[", "]", "{", "}",
		",", "{berlin,prod}", "{b,}", "{*,a}", `\`, `\*`, "ü", "B", "!", "\x00",
	})
	pieces := rapid.Custom(func(t *rapid.T) string {
		text := ""
		for _, p := range rapid.SliceOfN(piece, 0, 4).Draw(t, "pieces") {
			text += p
		}
		return text
	})
	return rapid.OneOf(aName(), aName(), rapid.Just("*"), pieces)
}

// aPattern is a glob that denies, one time in four.
func aPattern() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := aGlob().Draw(t, "glob")
		if rapid.IntRange(0, 3).Draw(t, "denies") == 0 {
			return "!" + text
		}
		return text
	})
}

// anAddress is a pattern for addresses of clusters.
func anAddress() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		text := rapid.OneOf(
			rapid.SampledFrom([]string{"", "*", "https://*", inClusterServer, "https://kubernetes*", "https://proxy*", "https://elsewhere", "https://" + proxy + "*"}),
			rapid.Map(aName(), func(name string) string { return "https://" + proxy + "?agentName=" + name }),
			rapid.Map(aGlob(), func(glob string) string { return "https://" + proxy + "?agentName=" + glob }),
			rapid.Map(aGlob(), func(glob string) string { return "https://" + glob }),
		).Draw(t, "address")
		if rapid.IntRange(0, 4).Draw(t, "denies") == 0 {
			return "!" + text
		}
		return text
	})
}

// decoded returns what a JSON text is as one of Argo CD's types.
func decoded[T any](t require.TestingT, raw []byte) T {
	var out T
	require.NoError(t, json.Unmarshal(raw, &out), "%s", raw)
	return out
}

// encoded returns JSON.
func encoded(t require.TestingT, v any) json.RawMessage {
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// tb is a test of one input, generated or not.
type tb interface {
	require.TestingT
	Skip(args ...any)
}

// skipPanics skips a case in which the library of globs panics: then Argo CD has no answer.
func skipPanics(t tb) {
	switch cause := recover().(type) {
	case nil:
	case runtime.Error:
		t.Skip(cause)
	default:
		panic(cause)
	}
}

// permits asks Argo CD whether a project permits a namespace of a cluster.
func permits(t tb, project v1alpha1.AppProject, name, server, namespace string) bool {
	defer skipPanics(t)
	permitted, err := project.IsDestinationPermitted(&v1alpha1.Cluster{Name: name, Server: server}, namespace,
		func(string) ([]*v1alpha1.Cluster, error) { return nil, nil })
	require.NoError(t, err)
	return permitted
}

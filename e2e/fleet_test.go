package e2e_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/verify"
)

// wholeFleet is a hub with agents of every kind: managed by namespace, managed by destination, autonomous. No controllers run:
// what they would write, the test does.
type wholeFleet struct {
	lab        *lab.Lab
	principals []*lab.Principal
	agents     map[string]*lab.Agent
	pairs      []verify.Pair
	seed       uint64
}

// size is how much there is to do.
type size struct {
	applications int // of each agent
	projects     int
	secrets      int
	lasts        time.Duration
}

// Everything that is shared, of agents of every kind, under cuts, restarts and changes on both sides, is equal in the end,
// object by object, and nothing has grown. FLEET_SEED repeats the dice of an earlier run, FLEET_DIR keeps the logs.
func TestFleet(t *testing.T) {
	s := size{applications: 500, projects: 20, secrets: 50, lasts: 10 * time.Minute}
	if testing.Short() {
		s = size{applications: 100, projects: 10, secrets: 20, lasts: time.Minute}
	}
	f := newWholeFleet(t)
	f.fill(t, s)
	f.settle(t, "filled")
	before := f.footprints(t)

	ctx, cancel := context.WithTimeout(t.Context(), s.lasts)
	defer cancel()
	var work sync.WaitGroup
	workers := f.workers(s)
	for _, w := range workers {
		work.Go(func() { w.work(ctx) })
	}
	f.storm(ctx, t, &work)
	work.Wait()
	f.settle(t, "done")
	for _, w := range workers {
		t.Logf("%s to %s of %s: %d changes, and %d that did not succeed", w.names[0], w.names[len(w.names)-1], w.originals, w.changes, w.failures)
		require.Positive(t, w.changes, "where nothing changes, all is equal: every write failed")
	}
	f.requireNotGrown(t, before)
}

func newWholeFleet(t *testing.T) *wholeFleet {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("FLEET_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("FLEET_SEED=%d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{
		Spokes: []string{"managed", "placed", "free"}, Dir: os.Getenv("FLEET_DIR"), Keep: os.Getenv("FLEET_DIR") != "",
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	f := &wholeFleet{lab: l, seed: seed, agents: make(map[string]*lab.Agent)}
	ofNamespaces := f.principal(ctx, t)
	f.agent(ctx, t, ofNamespaces, "managed", facets.Managed)
	f.agent(ctx, t, ofNamespaces, "free", facets.Autonomous)
	ofDestinations := f.principal(ctx, t, byDestination, "--allowed-namespaces=team-*")
	f.agent(ctx, t, ofDestinations, "placed", facets.Managed, byDestination, "--allowed-namespaces=team-*", "--create-namespace=true")
	require.NoError(t, l.Hub.Apply(ctx, namespace("team-x")))
	return f
}

func (f *wholeFleet) principal(ctx context.Context, t *testing.T, args ...string) *lab.Principal {
	t.Helper()
	p, err := f.lab.NewPrincipal(ctx, lab.PrincipalOptions{Alive: true, Args: args})
	require.NoError(t, err)
	require.NoError(t, p.Start(ctx))
	f.principals = append(f.principals, p)
	return p
}

func (f *wholeFleet) agent(ctx context.Context, t *testing.T, p *lab.Principal, name string, mode facets.Mode, args ...string) {
	t.Helper()
	a, err := f.lab.NewAgent(ctx, lab.AgentOptions{Spoke: name, Mode: string(mode), Principal: p, Args: args})
	require.NoError(t, err)
	require.NoError(t, a.Start(ctx))
	require.NoError(t, a.WaitConnected(ctx))
	f.agents[name] = a
	pair := verify.Pair{
		Hub:   verify.Site{Config: f.lab.Hub.RESTConfig(), Namespace: lab.Namespace, Mapping: mapping.ByNamespace{}},
		Spoke: verify.Site{Config: f.lab.Spoke(name).RESTConfig(), Namespace: lab.Namespace, Mapping: mapping.ByNamespace{Spoke: lab.Namespace}},
		Agent: name, Mode: mode, ApplicationNamespace: lab.Namespace,
	}
	if slices.Contains(args, byDestination) {
		all := func(string) bool { return true }
		pair.Hub.Mapping, pair.Spoke.Mapping = mapping.ByDestination{Hub: lab.Namespace, Allowed: all}, mapping.ByDestination{Spoke: lab.Namespace, Allowed: all}
		pair.ApplicationNamespace = ""
	}
	pair.Selector, err = facets.ParseSelector("")
	require.NoError(t, err)
	f.pairs = append(f.pairs, pair)
}

// worker changes some objects, on the side that they come from, and meddles with their copies on the other.
type worker struct {
	dice *rand.Rand
	home *lab.Cluster // where the originals are
	away *lab.Cluster
	// originals and copies are selected without a name.
	originals, copies cluster.Selection
	named             func(name string) string
	make              func(w *worker, name string) *unstructured.Unstructured
	names             []string
	// serial makes changes distinct.
	serial int
	// failures are what must be expected: of two who write at once one comes too late, what is to be edited may be deleted, and
	// API servers are away.
	changes, failures int
}

// workers are all who are at work.
func (f *wholeFleet) workers(s size) []*worker {
	hub := f.lab.Hub
	same := func(name string) string { return name }
	var all []*worker
	add := func(name string, n int, w worker) {
		const share = 50 // objects for each
		for first := 0; first < n; first += share {
			one := w
			one.dice = rand.New(rand.NewPCG(f.seed, uint64(len(all))))
			for i := first; i < min(n, first+share); i++ {
				one.names = append(one.names, fmt.Sprintf("%s-%d", name, i))
			}
			all = append(all, &one)
		}
	}
	application := func(namespace, destination string) func(*worker, string) *unstructured.Unstructured {
		return func(_ *worker, name string) *unstructured.Unstructured {
			return argocd.New(argocd.Application{
				Namespace: namespace, Name: name, RepoURL: "https://git.example.com/x", Path: "x", Destination: destination, Into: name, Manual: true,
			})
		}
	}
	managed, placed, free := f.lab.Spoke("managed"), f.lab.Spoke("placed"), f.lab.Spoke("free")
	add("app", s.applications, worker{
		home: hub, away: managed, originals: argocd.All("managed"), copies: argocd.All(lab.Namespace), named: same, make: application("managed", "managed"),
	})
	add("app", s.applications/2, worker{
		home: hub, away: placed, originals: argocd.All("team-x"), copies: argocd.All("team-x"), named: same, make: application("team-x", "placed"),
	})
	add("placed", s.applications/2, worker{
		home: hub, away: placed, originals: argocd.All(lab.Namespace), copies: argocd.All(lab.Namespace), named: same, make: application(lab.Namespace, "placed"),
	})
	add("app", s.applications, worker{
		home: free, away: hub, originals: argocd.All(lab.Namespace), copies: argocd.All("free"), named: same, make: application(lab.Namespace, "in-cluster"),
	})
	projects := project(hub, lab.Namespace, "").selection
	add("team", s.projects, worker{home: hub, away: managed, originals: projects, copies: projects, named: same, make: makeProject})
	add("own", s.projects, worker{
		home: free, away: hub, originals: projects, copies: projects, named: func(name string) string { return "free-" + name }, make: makeProject,
	})
	secrets := cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: lab.Namespace}
	add("repo", s.secrets, worker{
		home: hub, away: managed, originals: secrets, copies: secrets, named: same,
		make: func(w *worker, name string) *unstructured.Unstructured { return makeSecret(w, name, s.projects) },
	})
	return all
}

// makeProject makes a project that is for all agents.
func makeProject(w *worker, name string) *unstructured.Unstructured {
	w.serial++
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
		"metadata": map[string]any{"name": name, "namespace": lab.Namespace},
		"spec": map[string]any{
			"description": fmt.Sprint("number ", w.serial), "sourceNamespaces": []any{"*"}, "sourceRepos": []any{"*"},
			"destinations": []any{map[string]any{"name": "*", "server": "*", "namespace": "*"}},
		},
	}}
}

// makeSecret makes a repository of one of the projects.
func makeSecret(w *worker, name string, projects int) *unstructured.Unstructured {
	w.serial++
	content := repository(fmt.Sprintf("team-%d", w.dice.IntN(projects)))
	content["data"].(map[string]any)["password"] = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(w.serial)))
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": content["data"],
		"metadata": map[string]any{
			"name": name, "namespace": lab.Namespace,
			"labels": map[string]any{secretType: []string{"repository", "repo-creds"}[w.dice.IntN(2)]},
		},
	}}
}

// fill makes all objects.
func (f *wholeFleet) fill(t *testing.T, s size) {
	t.Helper()
	var work sync.WaitGroup
	for _, w := range f.workers(s) {
		work.Go(func() {
			for _, name := range w.names {
				_, err := w.home.Of(at(w.originals, name)).Create(t.Context(), w.make(w, name), metav1.CreateOptions{})
				if err != nil && t.Context().Err() == nil {
					t.Errorf("create %s: %v", name, err)
					return
				}
			}
		})
	}
	work.Wait()
}

// at returns a selection of one object.
func at(s cluster.Selection, name string) cluster.Selection {
	s.Name = name
	return s
}

// work changes something now and then until the context ends.
func (w *worker) work(ctx context.Context) {
	for wait(ctx, time.Duration(w.dice.Int64N(int64(time.Second)))) {
		name := w.names[w.dice.IntN(len(w.names))]
		var err error
		switch n := w.dice.IntN(20); {
		case n < 11:
			err = w.edit(ctx, w.home, at(w.originals, name), name)
		case n < 12:
			err = w.home.Of(at(w.originals, name)).Delete(ctx, name, metav1.DeleteOptions{})
		case n < 15:
			_, err = w.home.Of(at(w.originals, name)).Create(ctx, w.make(w, name), metav1.CreateOptions{})
		case n < 18:
			err = w.edit(ctx, w.away, at(w.copies, w.named(name)), name)
		case n < 19:
			err = w.away.Of(at(w.copies, w.named(name))).Delete(ctx, w.named(name), metav1.DeleteOptions{})
		case w.originals.Resource.Resource == "applications":
			// Others are not adopted when they are changed besides, and nobody remembers what they were after a restart.
			_, err = rewrite(ctx, w.away, at(w.copies, w.named(name)), wipeAnnotations)
		default:
			continue
		}
		if err != nil {
			w.failures++
		} else {
			w.changes++
		}
	}
}

// edit changes an object in one way or another.
func (w *worker) edit(ctx context.Context, c *lab.Cluster, s cluster.Selection, name string) error {
	w.serial++
	_, err := rewrite(ctx, c, s, func(object *unstructured.Unstructured) {
		switch w.dice.IntN(4) {
		case 0:
			object.SetLabels(with(object.GetLabels(), "number", strconv.Itoa(w.serial)))
		case 1:
			object.SetAnnotations(with(object.GetAnnotations(), "example.com/number", strconv.Itoa(w.serial)))
		case 2:
			if object.GetKind() == "Application" {
				now := time.Unix(int64(w.serial), 0).UTC().Format(time.RFC3339)
				set(object, map[string]any{"health": map[string]any{"status": "Healthy", "lastTransitionTime": now}}, "status")
				return
			}
			fallthrough
		default:
			fresh := w.make(w, name)
			for _, part := range []string{"spec", "data"} {
				if value, ok := fresh.Object[part]; ok {
					object.Object[part] = value
				}
			}
			if object.GetKind() == "Application" {
				set(object, strconv.Itoa(w.serial), "spec", "source", "targetRevision")
			}
		}
	})
	return err
}

// storm lets mischief happen until there is a fifth of the time left, and heals everything then.
func (f *wholeFleet) storm(ctx context.Context, t *testing.T, work *sync.WaitGroup) {
	t.Helper()
	ends, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(time.Until(ends)*4/5))
	var all []mischief
	for _, p := range f.principals {
		all = append(all, mischief{name: "principal", pause: 20 * time.Second, happen: ending(p.Process)},
			mischief{name: "link principal-API server", pause: 10 * time.Second, happen: trouble(p.APIServer)})
	}
	for name, a := range f.agents {
		all = append(all, mischief{name: "agent " + name, pause: 20 * time.Second, happen: ending(a.Process)},
			mischief{name: "link " + name, pause: 10 * time.Second, happen: trouble(a.Principal)},
			mischief{name: "link " + name + "-API server", pause: 10 * time.Second, happen: trouble(a.APIServer)},
			mischief{name: "API server " + name, once: true, happen: killing(f.lab.Spoke(name))})
	}
	all = append(all, mischief{name: "API server hub", once: true, happen: killing(f.lab.Hub)})
	var parts sync.WaitGroup
	for i, m := range all {
		dice := rand.New(rand.NewPCG(f.seed, uint64(1000+i)))
		parts.Go(func() {
			if err := m.recur(ctx, time.Until(ends), dice, func(what string) { t.Log(time.Now().Format(time.TimeOnly), m.name, what) }); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		})
	}
	work.Go(func() {
		parts.Wait()
		cancel()
	})
}

// settle waits until all is equal, and fails with what is not.
func (f *wholeFleet) settle(t *testing.T, when string) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, pair := range f.pairs {
		var text strings.Builder
		differences, err := pair.Settle(ctx)
		require.NoError(t, err)
		for i, difference := range differences {
			if i < 20 {
				fmt.Fprintln(&text, difference)
			}
		}
		require.Empty(t, text.String(), "%s: FLEET_SEED=%d: %s\n%s", when, f.seed, pair.Agent, f.lab.Report())
	}
	t.Logf("%s: all is equal after %s", when, time.Since(began).Round(time.Millisecond))
}

// footprints returns the goroutines of each program, and the memory that it holds, in bytes.
func (f *wholeFleet) footprints(t *testing.T) map[string][2]float64 {
	t.Helper()
	urls := make(map[string]string)
	for i, p := range f.principals {
		urls[fmt.Sprint("principal ", i)] = p.MetricsURL
	}
	for name, a := range f.agents {
		urls["agent "+name] = a.MetricsURL
	}
	found := make(map[string][2]float64)
	for name, url := range urls {
		goroutines, err := metric(t.Context(), url, "go_goroutines")
		require.NoError(t, err)
		memory, err := metric(t.Context(), url, "go_memstats_heap_inuse_bytes")
		require.NoError(t, err)
		found[name] = [2]float64{goroutines, memory}
	}
	return found
}

// requireNotGrown waits until the programs are about as they were before.
func (f *wholeFleet) requireNotGrown(t *testing.T, before map[string][2]float64) {
	t.Helper()
	const spare = 16 << 20 // what the collector leaves, one time or another
	require.Eventually(t, func() bool {
		for name, now := range f.footprints(t) {
			if was := before[name]; now[0] > was[0]+spareGoroutines || now[1] > 1.5*was[1]+spare {
				return false
			}
		}
		return true
	}, 2*time.Minute, 2*time.Second, "before: %v", before)
	t.Logf("goroutines and heap before: %v, after: %v", before, f.footprints(t))
}

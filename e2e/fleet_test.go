package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/mapping"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/verify"
)

// wholeFleet is a hub with agents of every kind: managed by namespace, managed by destination, autonomous. Argo CD does not run:
// what it would write, the test does.
type wholeFleet struct {
	lab        *lab.Lab
	principals []*lab.Principal
	agents     map[string]*lab.Agent
	pairs      []verify.Pair
	seed       uint64
	// synced, refreshed and pruned count what the spokes' controllers did.
	synced, refreshed, pruned atomic.Int64
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
		s = size{applications: 500, projects: 10, secrets: 20, lasts: time.Minute}
	}
	f := newWholeFleet(t)
	f.fill(t, s)
	f.waitEqual(t, "filled")
	f.requireSeen(t)
	f.waitEqual(t, "mended")
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
	f.waitEqual(t, "done")
	f.requireNothingAsked(t)
	for _, w := range workers {
		t.Logf("%s to %s of %s: %d changes, and %d that did not succeed", w.names[0], w.names[len(w.names)-1], w.originals, w.changes, w.failures)
		require.Positive(t, w.changes, "where nothing changes, all is equal: every write failed")
	}
	for _, n := range []*atomic.Int64{&f.synced, &f.refreshed, &f.pruned} {
		require.Positive(t, n.Load())
	}
	t.Logf("%d syncs, %d refreshes, %d deletions with their resources", f.synced.Load(), f.refreshed.Load(), f.pruned.Load())
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
	ofNamespaces := f.start(ctx, t)
	f.agent(ctx, t, ofNamespaces, "managed", facets.Managed)
	f.agent(ctx, t, ofNamespaces, "free", facets.Autonomous)
	ofDestinations := f.start(ctx, t, byDestination, "--allowed-namespaces=team-*")
	f.agent(ctx, t, ofDestinations, "placed", facets.Managed, byDestination, "--allowed-namespaces=team-*", "--create-namespace=true")
	require.NoError(t, l.Hub.Apply(ctx, namespace("team-x")))
	for name := range f.agents {
		f.control(t, l.Spoke(name))
	}
	return f
}

// fleetPrincipals is how many principals there are of each mapping: agents come to any of them.
const fleetPrincipals = 3

// start starts the principals of a mapping.
func (f *wholeFleet) start(ctx context.Context, t *testing.T, args ...string) []*lab.Principal {
	t.Helper()
	replicas, err := f.lab.NewPrincipals(ctx, fleetPrincipals, lab.PrincipalOptions{Alive: true, Args: args})
	require.NoError(t, err)
	for _, p := range replicas {
		require.NoError(t, p.Start(ctx))
	}
	f.principals = append(f.principals, replicas...)
	return replicas
}

func (f *wholeFleet) agent(ctx context.Context, t *testing.T, replicas []*lab.Principal, name string, mode facets.Mode, args ...string) {
	t.Helper()
	a, err := f.lab.NewAgent(ctx, lab.AgentOptions{Spoke: name, Mode: string(mode), Principal: replicas[0], Args: args})
	require.NoError(t, err)
	addresses := make([]string, len(replicas))
	for i, p := range replicas {
		addresses[i] = p.Address
	}
	a.Principal.Spread(addresses...)
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
	if pair.Selector, err = facets.ParseSelector(""); err != nil {
		t.Fatal(err)
	}
	f.pairs = append(f.pairs, pair)
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

// storm lets mischief happen until there is a fifth of the time left, and heals everything then.
func (f *wholeFleet) storm(ctx context.Context, t *testing.T, work *sync.WaitGroup) {
	t.Helper()
	ends, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(time.Until(ends)*4/5))
	var all []mischief
	for _, p := range f.principals {
		all = append(all, mischief{name: "principal", pause: 20 * time.Second, happen: ending(p.Process)},
			mischief{name: "link principal-API server", pause: 10 * time.Second, happen: disturb(p.APIServer)})
	}
	for name, a := range f.agents {
		all = append(all, mischief{name: "agent " + name, pause: 20 * time.Second, happen: ending(a.Process)},
			mischief{name: "link " + name, pause: 10 * time.Second, happen: disturb(a.Principal)},
			mischief{name: "link " + name + "-API server", pause: 10 * time.Second, happen: disturb(a.APIServer)},
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

// waitEqual waits until all is equal, and fails with what is not.
func (f *wholeFleet) waitEqual(t *testing.T, when string) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, pair := range f.pairs {
		var text strings.Builder
		differences, err := pair.WaitEqual(ctx)
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

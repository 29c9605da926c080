package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

const (
	// chaosLasts is how long people and mischief are at work.
	chaosLasts = 2 * time.Minute
	// peoplePerAgent is how many people work at a time, each on an Application of their own. They are too few to delete
	// so many Applications during a disconnection that the deletion guard would pause that.
	peoplePerAgent = 9
	// chaosPrincipals is how many principals there are: agents come to any of them.
	chaosPrincipals = 3
	// settling is how long everything may take to become equal once nothing is in its way: what was put back again and
	// again by then waits up to a minute.
	settling = 2 * time.Minute
	// quiet is how long nothing may happen before all is taken to be over.
	quiet = 4 * time.Second
	// spareGoroutines is by how many the goroutines of a process may differ at rest: idle connections have some. Each tunnel
	// connection has some more.
	spareGoroutines               = 12
	goroutinesPerTunnelConnection = 8
)

// chaos is one run: a lab, and what happens in it.
type chaos struct {
	lab     *lab.Lab
	seed    uint64
	history *history
	people  []*person
}

// Whatever happens to links, processes and API servers while Applications are created, edited on both sides, synced,
// refreshed and deleted: once it is over, hub and spokes are equal, nothing was done twice and nothing is left over.
// CHAOS_SEED repeats the dice of an earlier run; the machine's timing it cannot repeat. CHAOS_DIR keeps the logs.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("two minutes: make e2e runs it")
	}
	c := newChaos(t)
	before := c.goroutines(t.Context(), t)
	ctx, cancel := context.WithTimeout(t.Context(), chaosLasts+settling+time.Minute)
	defer cancel()

	var people sync.WaitGroup
	working, goHome := context.WithCancel(ctx)
	defer goHome()
	for _, p := range c.people {
		people.Go(func() { p.live(working) })
	}
	// Processes end only in the first part, so that the second shows what a process that lives through cuts does not
	// clean up. In the last part nothing is in the way: a change that got lost then is not found by a reconnection.
	c.storm(ctx, t, chaosLasts*6/10, slices.Concat(c.accidents(), c.weather()))
	c.storm(ctx, t, chaosLasts*2/10, c.weather())
	c.heal(ctx, t)
	wait(ctx, chaosLasts*2/10)
	goHome()
	people.Wait()
	c.history.note("everyone", "goes home")

	c.waitEqual(ctx, t)
	c.requireOneRunPerSync(t)
	c.requireGoroutines(ctx, t, before)
	c.tell(t)
}

// newChaos starts a lab with nothing in it but bystanders, and those who will work there.
func newChaos(t *testing.T) *chaos {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CHAOS_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("CHAOS_SEED=%d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{
		Spokes: []string{"a", "b"}, ArgoCD: true, Agents: true, Principals: chaosPrincipals,
		Principal: lab.PrincipalOptions{Alive: true},
		Dir:       os.Getenv("CHAOS_DIR"), Keep: os.Getenv("CHAOS_DIR") != "",
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })

	c := &chaos{lab: l, seed: seed, history: newHistory()}
	following, stop := context.WithCancel(context.Background())
	var followers sync.WaitGroup
	t.Cleanup(func() { stop(); followers.Wait() })
	for _, f := range []func(context.Context){
		c.history.follow(t, hubSide, l.Hub), c.history.follow(t, "a", l.Spoke("a")), c.history.follow(t, "b", l.Spoke("b")),
	} {
		followers.Go(func() { f(following) })
	}
	for _, agent := range []string{"a", "b"} {
		c.createBystander(t, agent)
		for i := range peoplePerAgent {
			c.people = append(c.people, newPerson(c, agent, fmt.Sprintf("app-%d", i)))
		}
	}
	return c
}

// dice are random numbers of their own for each who throws them, so that they do not depend on who is faster.
func (c *chaos) dice(name string) *rand.Rand {
	salt := uint64(14695981039346656037)
	for _, b := range []byte(name) {
		salt = (salt ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(c.seed, salt))
}

// waitEqual waits until hub and spokes are equal and nothing moves any more.
func (c *chaos) waitEqual(ctx context.Context, t *testing.T) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			c.fail(t, c.differences())
			return
		case <-c.history.changed:
			timer.Reset(quiet)
		case <-timer.C:
			if len(c.differences()) == 0 {
				t.Logf("settled after %s, of which %s were quiet", time.Since(began).Round(time.Millisecond), quiet)
				return
			}
			timer.Reset(quiet)
		}
	}
}

// fail tells all that is known about what is not as it should be.
func (c *chaos) fail(t *testing.T, differences map[string][]string) {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "CHAOS_SEED=%d\n", c.seed)
	if len(differences) == 0 {
		text.WriteString("hub and spokes are equal, but do not come to rest\n")
	}
	for _, key := range slices.Sorted(maps.Keys(differences)) {
		fmt.Fprintf(&text, "\n=== %s\n%s\n", key, strings.Join(differences[key], "\n"))
		text.WriteString(c.history.tell(key))
	}
	fmt.Fprintf(&text, "\n=== what happened to the parts\n%s\n%s", c.history.lines("weather"), c.lab.Report())
	t.Fatal(text.String())
}

// goroutines returns the number of goroutines of the principal and of each agent.
func (c *chaos) goroutines(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	urls := map[string]string{"a": c.lab.Agent("a").MetricsURL, "b": c.lab.Agent("b").MetricsURL}
	for i, p := range c.lab.Principals {
		urls["principal "+strconv.Itoa(i)] = p.MetricsURL
	}
	for name, url := range urls {
		n, err := metric(ctx, url, "go_goroutines")
		require.NoError(t, err)
		counts[name] = int(n)
	}
	return counts
}

// requireGoroutines waits until the processes have about as many goroutines as before.
func (c *chaos) requireGoroutines(ctx context.Context, t *testing.T, before map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // for connections that end late
	defer cancel()
	for {
		connections, err := c.ofPrincipals(ctx, "argocd_principal_tunnel_connections")
		require.NoError(t, err)
		now, good := c.goroutines(ctx, t), true
		for name, n := range now {
			good = good && n <= before[name]+spareGoroutines+goroutinesPerTunnelConnection*int(connections)
		}
		if good {
			t.Logf("goroutines before: %v, after: %v with %.0f tunnel connections", before, now, connections)
			return
		}
		if !wait(ctx, time.Second) {
			t.Fatalf("CHAOS_SEED=%d\ngoroutines before: %v, after: %v with %.0f connections\n%s", c.seed, before, now, connections, c.history.lines("weather"))
		}
	}
}

// tell logs what the run was made of: chaos in which little happened proves little.
func (c *chaos) tell(t *testing.T) {
	t.Helper()
	total := make(map[string]int)
	syncs := 0
	for _, p := range c.people {
		for what, n := range p.done {
			total[what] += n
		}
		syncs += len(p.syncs)
	}
	connections, err := c.ofPrincipals(t.Context(), "argocd_principal_agent_connections_total")
	require.NoError(t, err)
	t.Logf("done: %v\nsyncs that were accepted: %d\nmischief: %v\nconnections since the principals last started: %.0f",
		total, syncs, c.history.counts(), connections)
}

// ofPrincipals is a metric's sum over all principals.
func (c *chaos) ofPrincipals(ctx context.Context, name string) (sum float64, err error) {
	for _, p := range c.lab.Principals {
		n, err := metric(ctx, p.MetricsURL, name)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// metric reads one metric from a process, the sum over its labels.
func metric(ctx context.Context, url, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	request.Close = true // a connection that is kept costs the process goroutines
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	lines, sum, found := bufio.NewScanner(response.Body), 0.0, false
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, err
		}
		sum, found = sum+value, true
	}
	if found {
		return sum, nil
	}
	return 0, fmt.Errorf("%s has no %s: %w", url, name, lines.Err())
}

// wait lets time pass, and reports whether it all did before the context ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

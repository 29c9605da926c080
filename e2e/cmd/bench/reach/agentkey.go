package reach

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/pace"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// format is how keys of resource trees are written, with the name of an Application: those that the controllers of the pinned
// Argo CD write.
const format = "app|resources-tree|%s|1.8.3.gz"

// value is a kind of value that a key may have.
type value struct {
	name  string // as figures call it
	size  int    // bytes
	count int    // how many keys have it, each of which is asked for once when nobody has asked for it before
}

func values() []value {
	return []value{{"10 kB", 10_000, 200}, {"1 MB", 1_000_000, 30}}
}

// agentKey asks for keys of an agent's through a redisproxy: for many that nobody has asked for before, and then for one again
// and again. The floor of the first is the same client directly at the spoke's Redis; that of the second, a key of the hub's own
// through a redisproxy, which can do no less for a key that it holds than to pass on a question and its answer.
func (g *ground) agentKey(ctx context.Context, contender string) (sample figures.Sample, err error) {
	stored := open(g.Lab.Spoke(spoke).ArgoCD.RedisAddress)
	hub := open(g.Lab.Hub.ArgoCD.RedisAddress)
	defer func() { err = errors.Join(err, stored.Close(), hub.Close()) }()
	var keys []string
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx), keys, stored, hub)) }()

	proxy, err := g.newRedisproxy(ctx)
	if err != nil {
		return nil, err
	}
	var programs []contest.Program
	if contender == figures.Ours {
		programs = g.programs("redisproxy", proxy.Process)
	}
	return g.metered(ctx, proxy, programs, func(meter *contest.Meter) (figures.Sample, error) {
		through := open(proxy.Address)
		defer func() { _ = through.Close() }() // it was only read from
		var sample figures.Sample
		for _, v := range values() {
			q := query{value: v, stored: stored, hub: hub, through: through, turn: g.turn}
			g.turn++
			keys = append(keys, q.keys()...)
			own, err := q.measure(ctx, contender, meter, g.Duration)
			if err != nil {
				return nil, err
			}
			sample = append(sample, own...)
		}
		return sample, nil
	})
}

// query asks for keys that have one kind of value.
type query struct {
	value
	turn                 int // no two have the same keys
	stored, hub, through *redis.Client
}

// app is the name of an Application that there is not.
func (q query) app(i int) string { return fmt.Sprintf("bench-%d-%d", q.turn, i) }

// keys are all keys of the query, as they are called where they are stored.
func (q query) keys() []string {
	keys := make([]string, q.count)
	for i := range keys {
		keys[i] = fmt.Sprintf(format, q.app(i))
	}
	return keys
}

func (q query) measure(ctx context.Context, contender string, meter *contest.Meter, d time.Duration) (figures.Sample, error) {
	keys := q.keys()
	content := make([]byte, q.size)
	_, _ = rand.Read(content) // which never fails
	for _, key := range keys {
		if err := q.stored.Set(ctx, key, content, 0).Err(); err != nil {
			return nil, err
		}
	}
	first, again, known := q.stored, q.through, keys[0]
	if contender == figures.Ours {
		for i := range keys {
			keys[i] = fmt.Sprintf(format, spoke+"_"+q.app(i))
		}
		first, known = q.through, keys[len(keys)-1] // of those that it has kept
	} else if err := q.hub.Set(ctx, known, content, 0).Err(); err != nil { // by its name the hub's own
		return nil, err
	}
	// A first question connects, and has the agent's changes followed.
	if err := q.get(ctx, first, keys[0]); err != nil {
		return nil, err
	}
	var cold []time.Duration
	for _, key := range keys[1:] {
		began := time.Now()
		if err := q.get(ctx, first, key); err != nil {
			return nil, err
		}
		cold = append(cold, time.Since(began))
	}
	work, err := meter.Begin()
	if err != nil {
		return nil, err
	}
	cached, err := pace.OneByOne(ctx, d, func(ctx context.Context) error { return q.get(ctx, again, known) })
	if err != nil {
		return nil, err
	}
	each, err := work.Each("cached GET of "+q.name, len(cached))
	return append(figures.Sample{
		figures.Duration(q.name+" cold p50", figures.Milliseconds, figures.Percentile(cold, 50)),
		figures.Duration(q.name+" cached p50", figures.Milliseconds, figures.Percentile(cached, 50)),
		figures.Duration(q.name+" cached p99", figures.Milliseconds, figures.Percentile(cached, 99)),
	}, each...), err
}

func (q query) get(ctx context.Context, from *redis.Client, key string) error {
	content, err := from.Get(ctx, key).Bytes()
	if err != nil {
		return fmt.Errorf("GET %s: %w", key, err)
	}
	if len(content) != q.size {
		return fmt.Errorf("GET %s: %d bytes, want %d", key, len(content), q.size)
	}
	return nil
}

// remove deletes keys where they may be.
func remove(ctx context.Context, keys []string, from ...*redis.Client) error {
	if len(keys) == 0 {
		return nil
	}
	var failures []error
	for _, client := range from {
		failures = append(failures, client.Del(ctx, keys...).Err())
	}
	return errors.Join(failures...)
}

// open makes a client that has one connection.
func open(address string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, Password: argocd.RedisPassword, PoolSize: 1, MaxRetries: -1})
}

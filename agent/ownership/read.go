package ownership

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
)

const (
	// atOnce is how many trees are read in one round trip, and readers how many of these are under way at a time for one
	// lookup: together they bound the memory that reading takes.
	atOnce  = 16
	readers = 4
	// maxApplications is how many applications are kept. One cluster with more has other worries.
	maxApplications = 1 << 17
)

// reread reads the trees of applications again that are not believed, under the version that the controller announces.
func (t *Trees) reread(ctx context.Context, numbers []uint32, since uint64) error {
	t.mu.RLock()
	upgraded := t.announced != "" && t.announced != t.format.Version
	t.mu.RUnlock()
	if upgraded {
		if err := t.list(ctx, since); err != nil {
			return err
		}
	}
	return t.refresh(ctx, numbers, since)
}

// refresh reads the trees of applications again that are not believed.
func (t *Trees) refresh(ctx context.Context, numbers []uint32, since uint64) error {
	for {
		mine, others := t.claim(numbers, since)
		if len(mine) == 0 && len(others) == 0 {
			return nil
		}
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(readers)
		for batch := range slices.Chunk(mine, atOnce) {
			group.Go(func() error { return t.read(groupCtx, batch) })
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("the Redis of this cluster's Argo CD: %w", err)
		}
		for _, ended := range others {
			select {
			case <-ended:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// claim returns the applications that the caller must read, and what tells that others have been read by somebody else.
func (t *Trees) claim(numbers []uint32, since uint64) (mine []uint32, others []<-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, number := range numbers {
		a, ok := t.apps[number]
		switch {
		case !ok || t.believed(a, since):
		case a.reading != nil:
			others = append(others, a.reading)
		default:
			a.reading = make(chan struct{})
			mine = append(mine, number)
		}
	}
	return mine, others
}

// reading is the tree of one application that is being read.
type reading struct {
	number  uint32
	name    string
	found   bool
	entries []entry
}

// read reads trees that were claimed.
func (t *Trees) read(ctx context.Context, numbers []uint32) error {
	t.mu.Lock()
	started, f := t.tick(), t.format
	readings := make([]reading, len(numbers))
	for i, number := range numbers {
		readings[i] = reading{number: number, name: t.apps[number].name}
	}
	t.mu.Unlock()

	err := t.fetch(ctx, f, readings)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range readings {
		a := t.apps[r.number]
		if err == nil {
			a.hashes, a.read = t.index.replace(r.number, a.hashes, r.entries), started
		}
		close(a.reading)
		a.reading = nil
		if err == nil && !r.found && a.noticed < started {
			t.forget(r.number)
		}
	}
	return err
}

// forget drops an application that nobody reads. t.mu is held for writing.
func (t *Trees) forget(number uint32) {
	a := t.apps[number]
	t.index.replace(number, a.hashes, nil)
	delete(t.names, a.name)
	delete(t.apps, number)
}

// know returns an application that was heard of, nil if there are too many. t.mu is held for writing.
func (t *Trees) know(name string) *application {
	if number, ok := t.names[name]; ok {
		return t.apps[number]
	}
	if len(t.apps) >= maxApplications {
		return nil
	}
	// Numbers may begin anew when they have run out, which takes two thousand million applications.
	for taken := true; taken; _, taken = t.apps[t.last] {
		t.last = (t.last + 1) & (1<<31 - 1)
	}
	a := &application{name: name}
	t.names[name], t.apps[t.last] = t.last, a
	return a
}

// fetch reads trees from Redis. One that cannot be read counts as empty: what is in it is then found on the API server.
func (t *Trees) fetch(ctx context.Context, f keys.Format, readings []reading) error {
	names := make([]string, len(readings))
	for i, r := range readings {
		names[i] = t.space().Tree(r.name, 0, f)
	}
	values, err := t.get(ctx, names)
	if err != nil {
		return err
	}
	for i := range readings {
		r := &readings[i]
		if values[i] == nil {
			continue
		}
		r.found = true
		nodes, err := t.whole(ctx, f, r.name, values[i])
		values[i] = nil
		switch {
		case errors.Is(err, errRedis):
			return err
		case err != nil:
			t.options.Logger.Warn("An application's resource tree cannot be read", "application", r.name, "error", err)
		}
		r.entries = t.index.entries(nodes)
	}
	return nil
}

// whole returns the nodes of a tree, the first part of which is given.
func (t *Trees) whole(ctx context.Context, f keys.Format, name string, value []byte) ([]node, error) {
	left := t.options.MaxTree
	first, err := t.decode(f, value, &left)
	if err != nil || first.ShardsCount <= 1 {
		return first.Nodes, err
	}
	nodes := first.Nodes
	var parts []string
	for shard := 1; shard < first.ShardsCount; shard++ {
		parts = append(parts, t.space().Tree(name, shard, f))
	}
	for some := range slices.Chunk(parts, atOnce) {
		values, err := t.get(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			if value == nil {
				continue // it is being written: its notice will come
			}
			part, err := t.decode(f, value, &left)
			if err != nil {
				return nodes, err
			}
			nodes = append(nodes, part.Nodes...)
		}
	}
	return nodes, nil
}

// errRedis marks errors of Redis itself, apart from those of what is in it.
var errRedis = errors.New("read")

// get returns the values of keys, nil where there is none.
func (t *Trees) get(ctx context.Context, names []string) ([][]byte, error) {
	pipeline := t.options.Redis.Pipeline()
	answers := make([]*redis.StringCmd, len(names))
	for i, key := range names {
		answers[i] = pipeline.Get(ctx, key)
	}
	_, _ = pipeline.Exec(ctx) // each answer has its own error, also of this
	values := make([][]byte, len(names))
	for i, answer := range answers {
		value, err := answer.Bytes()
		switch {
		case errors.Is(err, redis.Nil):
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errRedis, err)
		default:
			values[i] = value
		}
	}
	return values, nil
}

// refreshAll reads all trees again that are not believed.
func (t *Trees) refreshAll(ctx context.Context, since uint64) error {
	if err := t.list(ctx, since); err != nil {
		return err
	}
	t.mu.RLock()
	var old []uint32
	for number, a := range t.apps {
		if !t.believed(a, since) {
			old = append(old, number)
		}
	}
	t.mu.RUnlock()
	return t.refresh(ctx, old, since)
}

// list finds out which trees there are, unless that is known.
func (t *Trees) list(ctx context.Context, since uint64) error {
	select {
	case t.scanning <- struct{}{}:
		defer func() { <-t.scanning }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	known := t.scanned > since || t.subscribed && t.scanned > t.doubted
	started := t.tick()
	t.mu.Unlock()
	if known {
		return nil
	}
	found := make(map[keys.Format][]string)
	scan := t.options.Redis.Scan(ctx, 0, t.space().Pattern(keys.Tree), 1000).Iterator()
	for n := 0; n < maxApplications && scan.Next(ctx); {
		if key := t.space().Key([]byte(scan.Val())); key.Kind == keys.Tree && !key.Sharded() {
			found[key.Format()] = append(found[key.Format()], key.Name)
			n++
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("the Redis of this cluster's Argo CD: %w", err)
	}
	t.listed(found, started)
	return nil
}

// listed takes over which trees there are.
func (t *Trees) listed(found map[keys.Format][]string, started uint64) {
	counts := make(map[keys.Format]int, len(found))
	for f, names := range found {
		counts[f] = len(names)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	expected := keys.Format{Version: t.options.CacheVersion, Compressed: !t.options.Uncompressed}
	if f := choose(counts, t.announced, expected); f != t.format {
		t.options.Logger.Info("Argo CD's keys in Redis have another format", "version", f.Version, "compressed", f.Compressed)
		t.format = f
		for _, a := range t.apps {
			a.read = 0
		}
	}
	t.scanned = started
	present := make(map[string]struct{}, len(found[t.format]))
	for _, name := range found[t.format] {
		present[name] = struct{}{}
		t.know(name)
	}
	for number, a := range t.apps {
		if _, ok := present[a.name]; !ok && a.noticed < started && a.reading == nil {
			t.forget(number)
		}
	}
}

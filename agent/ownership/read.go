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
	// batchSize is how many trees are read in one round trip, and maxReaders how many round trips run at a time for one lookup.
	// Together they bound the memory for reading.
	batchSize  = 16
	maxReaders = 4
	// maxApplications bounds the applications in the index.
	maxApplications = 1 << 17
)

// rereadChanged reads stale trees again. If the controller now uses another version, it first finds the keys of that version.
func (x *Index) rereadChanged(ctx context.Context, numbers []uint32, since uint64) error {
	x.mu.RLock()
	upgraded := x.announcedVersion != "" && x.announcedVersion != x.format.Version
	x.mu.RUnlock()
	if upgraded {
		if err := x.scanKeys(ctx, since); err != nil {
			return err
		}
	}
	return x.reread(ctx, numbers, since)
}

// reread reads stale trees again.
func (x *Index) reread(ctx context.Context, numbers []uint32, since uint64) error {
	for {
		mine, others := x.claimStale(numbers, since)
		if len(mine) == 0 && len(others) == 0 {
			return nil
		}
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(maxReaders)
		for batch := range slices.Chunk(mine, batchSize) {
			group.Go(func() error { return x.readTrees(groupCtx, batch) })
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

// claimStale returns the applications that the caller must read, and channels that close when other callers have read the
// others.
func (x *Index) claimStale(numbers []uint32, since uint64) (mine []uint32, others []<-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, number := range numbers {
		a, ok := x.apps[number]
		switch {
		case !ok || x.fresh(a, since):
		case a.readDone != nil:
			others = append(others, a.readDone)
		default:
			a.readDone = make(chan struct{})
			mine = append(mine, number)
		}
	}
	return mine, others
}

// treeRead is a read of the tree of one application.
type treeRead struct {
	number  uint32
	name    string
	found   bool
	objects []ownedObject
}

// readTrees reads trees that were claimed.
func (x *Index) readTrees(ctx context.Context, numbers []uint32) error {
	x.mu.Lock()
	started, f := x.tick(), x.format
	reads := make([]treeRead, len(numbers))
	for i, number := range numbers {
		reads[i] = treeRead{number: number, name: x.apps[number].name}
	}
	x.mu.Unlock()

	err := x.fetchTrees(ctx, f, reads)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range reads {
		a := x.apps[r.number]
		if err == nil {
			a.hashes, a.readAt = x.owners.replace(r.number, a.hashes, r.objects), started
		}
		close(a.readDone)
		a.readDone = nil
		if err == nil && !r.found && a.changedAt < started {
			x.removeApplication(r.number)
		}
	}
	return err
}

// removeApplication removes an application that nobody is reading. The caller holds x.mu for writing.
func (x *Index) removeApplication(number uint32) {
	a := x.apps[number]
	x.owners.replace(number, a.hashes, nil)
	delete(x.names, a.name)
	delete(x.apps, number)
}

// addApplication returns the application of that name, which it adds unless there are too many: then it returns nil. The
// caller holds x.mu for writing.
func (x *Index) addApplication(name string) *application {
	if number, ok := x.names[name]; ok {
		return x.apps[number]
	}
	if len(x.apps) >= maxApplications {
		return nil
	}
	// Numbers wrap around after two thousand million applications.
	for taken := true; taken; _, taken = x.apps[x.last] {
		x.last = (x.last + 1) & (1<<31 - 1)
	}
	a := &application{name: name}
	x.names[name], x.apps[x.last] = x.last, a
	return a
}

// fetchTrees reads trees from Redis. A tree that cannot be parsed counts as empty: its objects are then looked up on the API
// server.
func (x *Index) fetchTrees(ctx context.Context, f keys.Format, reads []treeRead) error {
	names := make([]string, len(reads))
	for i, r := range reads {
		names[i] = x.space().Tree(r.name, 0, f)
	}
	values, err := x.getValues(ctx, names)
	if err != nil {
		return err
	}
	for i := range reads {
		r := &reads[i]
		if values[i] == nil {
			continue
		}
		r.found = true
		nodes, err := x.fetchTree(ctx, f, r.name, values[i])
		values[i] = nil
		switch {
		case errors.Is(err, errRedis):
			return err
		case err != nil:
			x.options.Logger.Warn("Cannot read resource tree of Application", "application", r.name, "error", err)
		}
		r.objects = x.owners.objectsOf(nodes)
	}
	return nil
}

// fetchTree returns the nodes of a tree, given its first shard.
func (x *Index) fetchTree(ctx context.Context, f keys.Format, name string, value []byte) ([]node, error) {
	left := x.options.MaxTree
	first, err := x.decode(f, value, &left)
	if err != nil || first.ShardsCount <= 1 {
		return first.Nodes, err
	}
	nodes := first.Nodes
	var parts []string
	for shard := 1; shard < first.ShardsCount; shard++ {
		parts = append(parts, x.space().Tree(name, shard, f))
	}
	for some := range slices.Chunk(parts, batchSize) {
		values, err := x.getValues(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, value := range values {
			if value == nil {
				continue // it is being written: a notification will follow
			}
			part, err := x.decode(f, value, &left)
			if err != nil {
				return nodes, err
			}
			nodes = append(nodes, part.Nodes...)
		}
	}
	return nodes, nil
}

// errRedis marks errors of Redis itself, as opposed to errors in its values.
var errRedis = errors.New("read")

// getValues returns the values of keys, nil for missing ones.
func (x *Index) getValues(ctx context.Context, names []string) ([][]byte, error) {
	pipeline := x.options.Redis.Pipeline()
	replies := make([]*redis.StringCmd, len(names))
	for i, key := range names {
		replies[i] = pipeline.Get(ctx, key)
	}
	_, _ = pipeline.Exec(ctx) // each reply has this error too
	values := make([][]byte, len(names))
	for i, reply := range replies {
		value, err := reply.Bytes()
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

// rereadAll finds all trees, and reads the stale ones again.
func (x *Index) rereadAll(ctx context.Context, since uint64) error {
	if err := x.scanKeys(ctx, since); err != nil {
		return err
	}
	x.mu.RLock()
	var stale []uint32
	for number, a := range x.apps {
		if !x.fresh(a, since) {
			stale = append(stale, number)
		}
	}
	x.mu.RUnlock()
	return x.reread(ctx, stale, since)
}

// scanKeys finds the keys of all trees, unless they are known.
func (x *Index) scanKeys(ctx context.Context, since uint64) error {
	select {
	case x.scanToken <- struct{}{}:
		defer func() { <-x.scanToken }()
	case <-ctx.Done():
		return ctx.Err()
	}
	x.mu.Lock()
	known := x.scannedAt > since || x.subscribed && x.scannedAt > x.missedAt
	started := x.tick()
	x.mu.Unlock()
	if known {
		return nil
	}
	found := make(map[keys.Format][]string)
	scan := x.options.Redis.Scan(ctx, 0, x.space().Pattern(keys.Tree), 1000).Iterator()
	for n := 0; n < maxApplications && scan.Next(ctx); {
		if key := x.space().Key([]byte(scan.Val())); key.Kind == keys.Tree && !key.Sharded() {
			found[key.Format()] = append(found[key.Format()], key.Name)
			n++
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("the Redis of this cluster's Argo CD: %w", err)
	}
	x.applyScan(found, started)
	return nil
}

// applyScan adds and removes applications after a scan.
func (x *Index) applyScan(found map[keys.Format][]string, started uint64) {
	counts := make(map[keys.Format]int, len(found))
	for f, names := range found {
		counts[f] = len(names)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := chooseFormat(counts, x.announcedVersion); f != x.format {
		x.options.Logger.Info("Format of Argo CD's Redis keys changed", "version", f.Version, "compressed", f.Compressed)
		x.format = f
		for _, a := range x.apps {
			a.readAt = 0
		}
	}
	x.scannedAt = started
	present := make(map[string]struct{}, len(found[x.format]))
	for _, name := range found[x.format] {
		present[name] = struct{}{}
		x.addApplication(name)
	}
	for number, a := range x.apps {
		if _, ok := present[a.name]; !ok && a.changedAt < started && a.readDone == nil {
			x.removeApplication(number)
		}
	}
}

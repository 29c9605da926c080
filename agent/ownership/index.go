package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"

	corev1 "k8s.io/api/core/v1"
)

// Options configure an Index.
type Options struct {
	// Redis is a client of the spoke's Redis. Whoever made it closes it.
	Redis redis.UniversalClient
	// KeyPrefix begins all of Argo CD's keys. It is usually empty.
	KeyPrefix string
	// MaxTree bounds the uncompressed JSON of a tree, in bytes. It is DefaultMaxTree if 0.
	MaxTree int64
	// Config is for the spoke's API server, with the agent's own credentials.
	Config *rest.Config
	// ConfigMaps reads Argo CD's settings. It needs permission to list and watch argocd-cm.
	ConfigMaps cache.Getter
	// Namespace is that of the spoke's Argo CD.
	Namespace string
	// Shared reports whether the spoke has an Application of that instance name, its name, or namespace_name if it is not in Argo
	// CD's namespace, and shares it with the hub. It may change its mind at any time.
	Shared func(application string) bool
	Logger *slog.Logger
}

// Object identifies an object by its UID, by its name and its resource or kind, or by all of them. All that is set must match.
type Object struct {
	Group     string
	Resource  string // plural
	Kind      string // may replace Resource
	AnyGroup  bool   // Kind may be of any group
	Namespace string
	Name      string
	UID       string
}

// Owner is an Application that an object belongs to.
type Owner struct {
	// Application is its instance name, empty if there is none.
	Application string
	// Root means that the Application manages the object itself. Otherwise the object is a child of what it manages.
	Root bool
}

// Index returns which Application an object belongs to. It is safe for concurrent use.
type Index struct {
	options   Options
	kinds     *kindCache
	api       *apiLookup
	settings  *follow.Store[*corev1.ConfigMap, *tracking]
	scanToken chan struct{} // held while keys are scanned

	mu     sync.RWMutex
	owners *ownerMap               // guarded by mu
	names  map[string]uint32       // numbers of applications. Guarded by mu
	apps   map[uint32]*application // guarded by mu
	last   uint32                  // number that was assigned. Guarded by mu

	// A logical clock that ticks at each event orders reads and notifications. All guarded by mu.
	clock            uint64
	missedAt         uint64 // when notifications may last have been missed: what was read before is stale
	scannedAt        uint64 // when the keys were last scanned
	subscribed       bool
	format           keys.Format
	announcedVersion string // in the last notification
}

// application is an Application with a resource tree. It is guarded by Index.mu.
type application struct {
	name      string
	hashes    []uint64
	changedAt uint64        // when the last notification of it came
	readAt    uint64        // when its tree was read
	readDone  chan struct{} // closed at the end of the read in progress, nil if there is none
}

// New returns an Index, which is empty until the first lookup.
func New(o Options) (*Index, error) {
	if o.MaxTree == 0 {
		o.MaxTree = DefaultMaxTree
	}
	kinds, err := newKindCache(o.Config)
	if err != nil {
		return nil, fmt.Errorf("ownership index: discovery: %w", err)
	}
	x := &Index{
		options: o, kinds: kinds, settings: followSettings(o.ConfigMaps, o.Namespace), scanToken: make(chan struct{}, 1),
		owners: newOwnerMap(), names: make(map[string]uint32), apps: make(map[uint32]*application),
		clock: 1, missedAt: 1, format: usualFormat(),
	}
	x.api, err = newAPILookup(x)
	if err != nil {
		return nil, fmt.Errorf("ownership index: %w", err)
	}
	return x, nil
}

// Run subscribes to the controller's notifications until the context ends. Without Run, each Lookup reads the trees again.
func (x *Index) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { x.settings.Run(ctx) })
	x.watchNotifications(ctx)
}

// query is an Object as hashes: any of the names and, unless it is zero, the UID too.
type query struct {
	names []uint64
	uid   uint64
}

// Lookup returns the shared Application that an object belongs to, the zero Owner if it belongs to none. An error means that it
// could not find out.
func (x *Index) Lookup(ctx context.Context, o Object) (Owner, error) {
	q, err := x.newQuery(ctx, o)
	if err != nil || len(q.names) == 0 && q.uid == 0 {
		return Owner{}, err
	}
	owner, stale, since := x.cachedOwner(q)
	if owner.Application != "" {
		return owner, nil
	}
	if len(stale) > 0 {
		if err := x.rereadChanged(ctx, stale, since); err != nil {
			return Owner{}, err
		}
		if owner = x.ownerSince(q, since); owner.Application != "" {
			return owner, nil
		}
	}
	if err := x.rereadAll(ctx, since); err != nil {
		return Owner{}, err
	}
	if owner = x.ownerSince(q, since); owner.Application != "" || o.Name == "" || o.AnyGroup {
		return owner, nil
	}
	return x.api.lookup(ctx, o)
}

// newQuery returns the hashes of an object. It has no names if the API server has no such kind.
func (x *Index) newQuery(ctx context.Context, o Object) (query, error) {
	var q query
	if o.UID != "" {
		q.uid = x.owners.hashUID(o.UID)
		if o.Name == "" {
			return q, nil
		}
	}
	found, err := x.kinds.lookup(ctx, o)
	if err != nil {
		return query{}, fmt.Errorf("discover the kinds of the API server: %w", err)
	}
	for _, k := range found {
		// Cluster-scoped objects have no namespace in the tree.
		if k.namespaced == (o.Namespace != "") {
			q.names = append(q.names, x.owners.hashName(k.group, k.kind, o.Namespace, o.Name))
		}
	}
	if len(q.names) == 0 {
		return query{}, nil
	}
	return q, nil
}

// cachedOwner returns an owner from fresh trees, or else the applications with stale trees that have the object, and the time
// of the query.
func (x *Index) cachedOwner(q query) (owner Owner, stale []uint32, since uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var buffer [4]ownerID
	for _, m := range x.ownersOf(buffer[:0], q) {
		a := x.apps[m.application()]
		switch {
		case !x.options.Shared(a.name):
		case !x.fresh(a, x.clock):
			stale = append(stale, m.application())
		case owner.Application == "" || m.root():
			owner = Owner{Application: a.name, Root: m.root()}
		}
	}
	return owner, stale, x.clock
}

// ownerSince returns an owner from trees that were fresh at some time since then.
func (x *Index) ownerSince(q query, since uint64) (owner Owner) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var buffer [4]ownerID
	for _, m := range x.ownersOf(buffer[:0], q) {
		if a := x.apps[m.application()]; x.fresh(a, since) && (owner.Application == "" || m.root()) && x.options.Shared(a.name) {
			owner = Owner{Application: a.name, Root: m.root()}
		}
	}
	return owner
}

// hidden reports whether an object belongs to an application that is not shared.
func (x *Index) hidden(q query) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var buffer [4]ownerID
	return slices.ContainsFunc(x.ownersOf(buffer[:0], q), func(m ownerID) bool { return !x.options.Shared(x.apps[m.application()].name) })
}

// ownersOf returns the owners of an object. The caller holds x.mu.
func (x *Index) ownersOf(some []ownerID, q query) []ownerID {
	if len(q.names) == 0 {
		return x.owners.appendOwners(some, q.uid)
	}
	for _, key := range q.names {
		some = x.owners.appendOwners(some, key)
	}
	if q.uid == 0 {
		return some
	}
	var buffer [4]ownerID
	same := x.owners.appendOwners(buffer[:0], q.uid)
	both := some[:0]
	for _, m := range some {
		for _, o := range same {
			if o.application() == m.application() {
				both = append(both, m)
				break
			}
		}
	}
	return both
}

// fresh reports whether the cached tree of an application was current at some time since then. The caller holds x.mu.
func (x *Index) fresh(a *application, since uint64) bool {
	return a.readAt > since || x.subscribed && a.readAt > a.changedAt && a.readAt > x.missedAt
}

// space is all keys of the spoke's Argo CD.
func (x *Index) space() keys.Space { return keys.Space{Prefix: x.options.KeyPrefix} }

// tick advances the clock. The caller holds x.mu for writing.
func (x *Index) tick() uint64 {
	x.clock++
	return x.clock
}

// timeout is how long the spoke's API server may take to answer a request of this package.
const timeout = 10 * time.Second

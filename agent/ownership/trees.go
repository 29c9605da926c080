package ownership

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/redis/keys"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"

	corev1 "k8s.io/api/core/v1"
)

// DefaultCacheVersion is the version that Argo CD writes into its keys, unchanged for many releases.
const DefaultCacheVersion = "1.8.3"

// Options configure Trees.
type Options struct {
	// Redis is the spoke's. Whoever made the client closes it.
	Redis redis.UniversalClient
	// KeyPrefix is what all of Argo CD's keys begin with, usually nothing.
	KeyPrefix string
	// CacheVersion is the version that keys are expected to end with, DefaultCacheVersion if empty. Another that is found
	// instead, or that the controller announces, is used instead.
	CacheVersion string
	// Uncompressed says that trees are expected not to be compressed.
	Uncompressed bool
	// MaxTree is how many bytes of text are read of an application's tree, DefaultMaxTree if 0.
	MaxTree int64
	// Config is for the spoke's API server, with the agent's own rights.
	Config *rest.Config
	// ConfigMaps reads Argo CD's settings. It needs leave to list and watch argocd-cm.
	ConfigMaps typed.ConfigMapsGetter
	// Namespace is Argo CD's on the spoke.
	Namespace string
	// Exists says whether the spoke has an application, by its instance name: the name, or namespace_name if it is not in
	// Argo CD's namespace.
	Exists func(application string) bool
	Logger *slog.Logger
}

// Object says which object is meant: by its UID, or by its name and its resource or kind, or by all of them. What is given
// must all be true of it.
type Object struct {
	Group     string
	Resource  string // in the plural
	Kind      string // may be given in place of Resource
	AnyGroup  bool   // the kind may be of any group
	Namespace string
	Name      string
	UID       string
}

// Owner is an application that an object belongs to.
type Owner struct {
	// Application is its instance name, empty if there is none.
	Application string
	// Root says that the application itself manages the object, which is not only a child of what it manages.
	Root bool
}

// Trees answers which application an object belongs to. Its methods may be called from several goroutines.
type Trees struct {
	options  Options
	kinds    *kinds
	live     *live
	settings *follow.Store[*corev1.ConfigMap, *tracking]
	scanning chan struct{} // holds one token while keys are listed

	mu    sync.RWMutex
	index *index                  // guarded by mu
	names map[string]uint32       // numbers of applications. Guarded by mu
	apps  map[uint32]*application // guarded by mu
	last  uint32                  // number that was given. Guarded by mu

	// What happens is put in order by a clock that ticks at each event. All of it is guarded by mu.
	clock      uint64
	doubted    uint64 // when notices may last have been missed: what was read before is old
	scanned    uint64 // when the keys were last listed
	subscribed bool
	format     keys.Format
	announced  string // version of the last notice
}

// application is what is known of an application's tree. It is guarded by Trees.mu.
type application struct {
	name    string
	hashes  []uint64
	noticed uint64        // when it was last announced to have changed
	read    uint64        // when what is known was read
	reading chan struct{} // closed when the reading that is under way has ended, nil if there is none
}

// New returns Trees that reads nothing until it is asked.
func New(o Options) (*Trees, error) {
	if o.CacheVersion == "" {
		o.CacheVersion = DefaultCacheVersion
	}
	if o.MaxTree == 0 {
		o.MaxTree = DefaultMaxTree
	}
	kinds, err := newKinds(o.Config)
	if err != nil {
		return nil, fmt.Errorf("trees: discovery: %w", err)
	}
	t := &Trees{
		options: o, kinds: kinds, settings: followSettings(o.ConfigMaps, o.Namespace), scanning: make(chan struct{}, 1),
		index: newIndex(), names: make(map[string]uint32), apps: make(map[uint32]*application),
		clock: 1, doubted: 1, format: keys.Format{Version: o.CacheVersion, Compressed: !o.Uncompressed},
	}
	t.live, err = newLive(t)
	if err != nil {
		return nil, fmt.Errorf("trees: %w", err)
	}
	return t, nil
}

// Run listens to what the controller announces, until the context ends. Lookup works without, but everything is read anew
// for each answer.
func (t *Trees) Run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { t.settings.Run(ctx) })
	t.listen(ctx)
}

// question is what the index is asked: any of the keys and, unless it is zero, the UID too.
type question struct {
	keys []uint64
	uid  uint64
}

// Lookup returns the application that an object belongs to, the zero Owner if it belongs to none. The error means that
// this could not be found out, and says why.
func (t *Trees) Lookup(ctx context.Context, o Object) (Owner, error) {
	q, err := t.question(ctx, o)
	if err != nil || len(q.keys) == 0 && q.uid == 0 {
		return Owner{}, err
	}
	owner, old, since := t.ask(q)
	if owner.Application != "" {
		return owner, nil
	}
	if len(old) > 0 {
		if err := t.reread(ctx, old, since); err != nil {
			return Owner{}, err
		}
		if owner = t.askSince(q, since); owner.Application != "" {
			return owner, nil
		}
	}
	if err := t.refreshAll(ctx, since); err != nil {
		return Owner{}, err
	}
	if owner = t.askSince(q, since); owner.Application != "" || o.Name == "" || o.AnyGroup {
		return owner, nil
	}
	return t.live.lookup(ctx, o)
}

// question translates what is asked for into what the index holds. It has no keys if there is no such thing.
func (t *Trees) question(ctx context.Context, o Object) (question, error) {
	var q question
	if o.UID != "" {
		q.uid = t.index.uid(o.UID)
		if o.Name == "" {
			return q, nil
		}
	}
	found, err := t.kinds.find(ctx, o)
	if err != nil {
		return question{}, fmt.Errorf("which kinds the API server has: %w", err)
	}
	for _, k := range found {
		// What is in a namespace has one in the tree, and the rest has none.
		if k.namespaced == (o.Namespace != "") {
			q.keys = append(q.keys, t.index.object(k.group, k.kind, o.Namespace, o.Name))
		}
	}
	if len(q.keys) == 0 {
		return question{}, nil
	}
	return q, nil
}

// ask returns an owner that is certain, or else the applications that may be one once they are read again, and when that
// was asked.
func (t *Trees) ask(q question) (owner Owner, old []uint32, since uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var few [4]mark
	for _, m := range t.find(few[:0], q) {
		if a := t.apps[m.application()]; !t.believed(a, t.clock) {
			old = append(old, m.application())
		} else if owner.Application == "" || m.root() {
			owner = Owner{Application: a.name, Root: m.root()}
		}
	}
	return owner, old, t.clock
}

// askSince returns an owner of which it was certain at some time since then that it is one.
func (t *Trees) askSince(q question, since uint64) (owner Owner) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var few [4]mark
	for _, m := range t.find(few[:0], q) {
		if a := t.apps[m.application()]; t.believed(a, since) && (owner.Application == "" || m.root()) {
			owner = Owner{Application: a.name, Root: m.root()}
		}
	}
	return owner
}

// find returns the owners of what is asked for. t.mu is held.
func (t *Trees) find(some []mark, q question) []mark {
	if len(q.keys) == 0 {
		return t.index.find(some, q.uid)
	}
	for _, key := range q.keys {
		some = t.index.find(some, key)
	}
	if q.uid == 0 {
		return some
	}
	var few [4]mark
	same := t.index.find(few[:0], q.uid)
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

// believed says whether what is known of an application is what there was at some time since then. t.mu is held.
func (t *Trees) believed(a *application, since uint64) bool {
	return a.read > since || t.subscribed && a.read > a.noticed && a.read > t.doubted
}

// space is all keys of the spoke's Argo CD.
func (t *Trees) space() keys.Space { return keys.Space{Prefix: t.options.KeyPrefix} }

// tick returns a new time. t.mu is held for writing.
func (t *Trees) tick() uint64 {
	t.clock++
	return t.clock
}

// timeout is how long the spoke's own API server may take to answer a question of this package.
const timeout = 10 * time.Second

package ownership

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// minRefreshInterval is the least time between two discoveries.
const minRefreshInterval = 5 * time.Second

// kind is a kind of object, and its resource.
type kind struct {
	group, kind, version, resource string
	namespaced                     bool
}

// kindTable has the kinds of the API server. It is immutable.
type kindTable struct {
	byResource map[schema.GroupResource]kind
	byKind     map[schema.GroupKind]kind
	anyGroup   map[string][]kind
	discovered time.Time
}

// kindCache caches the kinds of the API server. It discovers them again for a kind that it does not have.
type kindCache struct {
	client discovery.DiscoveryInterface
	table  atomic.Pointer[kindTable]
	token  chan struct{} // held during a discovery
}

func newKindCache(config *rest.Config) (*kindCache, error) {
	bounded := rest.CopyConfig(config)
	bounded.Timeout = timeout
	client, err := discovery.NewDiscoveryClientForConfig(bounded)
	k := &kindCache{client: client, token: make(chan struct{}, 1)}
	k.table.Store(&kindTable{})
	return k, err
}

// lookup returns the kinds that an object may have: none or one, or several for any group.
func (k *kindCache) lookup(ctx context.Context, o Object) ([]kind, error) {
	known := k.table.Load()
	if found := known.lookup(o); len(found) > 0 {
		return found, nil
	}
	select {
	case k.token <- struct{}{}:
		defer func() { <-k.token }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if now := k.table.Load(); now == known && time.Since(known.discovered) > minRefreshInterval {
		if err := k.discover(known); err != nil {
			return nil, err
		}
	}
	return k.table.Load().lookup(o), nil
}

func (t *kindTable) lookup(o Object) []kind {
	var (
		found kind
		ok    bool
	)
	switch {
	case o.AnyGroup:
		return t.anyGroup[o.Kind]
	case o.Resource != "":
		found, ok = t.byResource[schema.GroupResource{Group: o.Group, Resource: o.Resource}]
	default:
		found, ok = t.byKind[schema.GroupKind{Group: o.Group, Kind: o.Kind}]
	}
	if !ok {
		return nil
	}
	return []kind{found}
}

// discover asks the API server. A group that fails keeps its previous kinds.
func (k *kindCache) discover(old *kindTable) error {
	_, lists, err := k.client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return err
	}
	next := &kindTable{
		byResource: make(map[schema.GroupResource]kind), byKind: make(map[schema.GroupKind]kind),
		anyGroup: make(map[string][]kind), discovered: time.Now(),
	}
	for _, list := range lists {
		next.addList(list)
	}
	for group := range failed {
		for _, had := range old.byResource {
			if had.group == group.Group {
				next.addKind(had)
			}
		}
	}
	k.table.Store(next)
	return nil
}

func (t *kindTable) addList(list *metav1.APIResourceList) {
	version, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			t.addKind(kind{group: version.Group, kind: r.Kind, version: version.Version, resource: r.Name, namespaced: r.Namespaced})
		}
	}
}

// addKind adds a kind, unless it is there in another version: the API server lists the preferred version first.
func (t *kindTable) addKind(k kind) {
	resource := schema.GroupResource{Group: k.group, Resource: k.resource}
	if _, known := t.byResource[resource]; known {
		return
	}
	t.byResource[resource] = k
	if key := (schema.GroupKind{Group: k.group, Kind: k.kind}); t.byKind[key].kind == "" {
		t.byKind[key] = k
		t.anyGroup[k.kind] = append(t.anyGroup[k.kind], k)
	}
}

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

// patience is the least time between two looks at what kinds there are.
const patience = 5 * time.Second

// kind is a kind of objects, and how the API server is asked for them.
type kind struct {
	group, kind, version, resource string
	namespaced                     bool
}

// table is the kinds that the API server has. It is never changed.
type table struct {
	byResource map[schema.GroupResource]kind
	byKind     map[schema.GroupKind]kind
	anyGroup   map[string][]kind
	at         time.Time
}

// kinds knows which kinds there are. It asks the API server when it is asked for one that it does not know.
type kinds struct {
	client discovery.DiscoveryInterface
	table  atomic.Pointer[table]
	asking chan struct{} // holds one token while the API server is asked
}

func newKinds(config *rest.Config) (*kinds, error) {
	bounded := rest.CopyConfig(config)
	bounded.Timeout = timeout
	client, err := discovery.NewDiscoveryClientForConfig(bounded)
	k := &kinds{client: client, asking: make(chan struct{}, 1)}
	k.table.Store(&table{})
	return k, err
}

// find returns what kinds an object may be of: none, or one, or several if any group will do.
func (k *kinds) find(ctx context.Context, o Object) ([]kind, error) {
	known := k.table.Load()
	if found := known.find(o); len(found) > 0 {
		return found, nil
	}
	select {
	case k.asking <- struct{}{}:
		defer func() { <-k.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if now := k.table.Load(); now == known && time.Since(known.at) > patience {
		if err := k.refresh(known); err != nil {
			return nil, err
		}
	}
	return k.table.Load().find(o), nil
}

func (t *table) find(o Object) []kind {
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

// refresh asks the API server. What a group that cannot be asked had before is kept.
func (k *kinds) refresh(old *table) error {
	_, lists, err := k.client.ServerGroupsAndResources()
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return err
	}
	next := &table{
		byResource: make(map[schema.GroupResource]kind), byKind: make(map[schema.GroupKind]kind),
		anyGroup: make(map[string][]kind), at: time.Now(),
	}
	for _, list := range lists {
		next.add(list)
	}
	for group := range failed {
		for _, had := range old.byResource {
			if had.group == group.Group {
				next.put(had)
			}
		}
	}
	k.table.Store(next)
	return nil
}

func (t *table) add(list *metav1.APIResourceList) {
	version, err := schema.ParseGroupVersion(list.GroupVersion)
	if err != nil {
		return
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			t.put(kind{group: version.Group, kind: r.Kind, version: version.Version, resource: r.Name, namespaced: r.Namespaced})
		}
	}
}

// put adds a kind. The API server names the version first that it likes best.
func (t *table) put(k kind) {
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

package follow

import (
	"context"
	"net"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
)

// endpoints is what is kept of an EndpointSlice.
type endpoints struct{ addresses []string }

// Endpoints follows the EndpointSlices of a Service until the context ends, and reports all addresses, host:port: at first, and again after
// each change. A Service with several ports needs one of the given name. Endpoints that are not ready count too: a process that shuts
// down still serves.
func Endpoints(ctx context.Context, api discoveryclient.EndpointSliceInterface, service, port string, report func(addresses []string)) {
	changed, selector := signal.New(), discoveryv1.LabelServiceName+"="+service
	store := New(Options[*discoveryv1.EndpointSlice, *endpoints]{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return api.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return api.Watch(ctx, o)
		},
		Kind:    &discoveryv1.EndpointSlice{},
		Reduce:  func(s *discoveryv1.EndpointSlice, _ *endpoints) *endpoints { return &endpoints{addressesOf(s, port)} },
		Changed: func(*endpoints, *endpoints) { changed.Give() }, Vanished: func([]*endpoints) { changed.Give() },
	})
	following := make(chan struct{})
	go func() { defer close(following); store.Run(ctx) }()
	defer func() { <-following }()
	var last []string
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		var all []string
		for s := range store.All() {
			all = append(all, s.addresses...)
		}
		slices.Sort(all)
		if all = slices.Compact(all); !slices.Equal(all, last) {
			last = all
			report(all)
		}
	}
}

func addressesOf(s *discoveryv1.EndpointSlice, port string) []string {
	var number int32
	for _, p := range s.Ports {
		if p.Port != nil && (len(s.Ports) == 1 || p.Name != nil && *p.Name == port) {
			number = *p.Port
		}
	}
	if number == 0 {
		return nil
	}
	var addresses []string
	for _, e := range s.Endpoints {
		for _, host := range e.Addresses {
			addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(int(number))))
		}
	}
	return addresses
}

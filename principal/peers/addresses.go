package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/follow"
)

// Addresses is how the principals of a hub find each other, as --peers says it:
//
//   - service:NAME: by the EndpointSlices of a headless Service in the principal's namespace;
//   - dns:HOST:PORT: by the A and AAAA records of a name;
//   - HOST:PORT,HOST:PORT: at these.
//
// A principal may be among those that it finds.
type Addresses struct {
	service string
	host    string
	port    string
	static  []string
}

const (
	servicePrefix = "service:"
	dnsPrefix     = "dns:"
)

// ParseAddresses reads the setting. The empty text is none. An error says what it may be.
func ParseAddresses(text string) (Addresses, error) {
	if text == "" {
		return Addresses{}, nil
	}
	if name, ok := strings.CutPrefix(text, servicePrefix); ok {
		if err := errors.Join(settings.NonEmpty(name), settings.DNSLabel(name)); err != nil {
			return Addresses{}, fmt.Errorf("service: %w", err)
		}
		return Addresses{service: name}, nil
	}
	if address, ok := strings.CutPrefix(text, dnsPrefix); ok {
		host, port, err := hostPort(address)
		return Addresses{host: host, port: port}, err
	}
	var a Addresses
	for address := range strings.SplitSeq(text, ",") {
		host, port, err := hostPort(strings.TrimSpace(address))
		if err != nil {
			return Addresses{}, err
		}
		a.static = append(a.static, net.JoinHostPort(host, port))
	}
	return a, nil
}

func hostPort(address string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err == nil {
		if n, failure := strconv.Atoi(port); failure != nil || n < 1 || n > 65535 || host == "" {
			err = errors.New("no such port")
		}
	}
	if err != nil {
		return "", "", fmt.Errorf("%q: want service:NAME, dns:HOST:PORT, or HOST:PORT with commas between several", address)
	}
	return host, port, nil
}

// Any reports whether there are to be peers.
func (a Addresses) Any() bool { return a.service != "" || a.host != "" || len(a.static) > 0 }

// Follow returns what follows the addresses, for Options.Addresses. client and namespace are of the Service.
func (a Addresses) Follow(client kubernetes.Interface, namespace string, logger *slog.Logger) func(context.Context, func([]string)) {
	switch {
	case a.service != "":
		return func(ctx context.Context, report func([]string)) { a.followSlices(ctx, client, namespace, report) }
	case a.host != "":
		return func(ctx context.Context, report func([]string)) { a.followNames(ctx, report, logger) }
	default:
		return func(ctx context.Context, report func([]string)) { report(a.static); <-ctx.Done() }
	}
}

// resolveEvery is how often a name is resolved: DNS tells nobody of a change.
const resolveEvery = 5 * time.Second

// followNames resolves a name again and again.
func (a Addresses) followNames(ctx context.Context, report func([]string), logger *slog.Logger) {
	ticker := time.NewTicker(resolveEvery)
	defer ticker.Stop()
	var last []string
	var said string
	for {
		hosts, err := net.DefaultResolver.LookupHost(ctx, a.host)
		switch {
		case err == nil:
			said = ""
			slices.Sort(hosts)
			if hosts = slices.Compact(hosts); !slices.Equal(hosts, last) {
				last = hosts
				report(a.withPort(hosts))
			}
		case ctx.Err() == nil && err.Error() != said: // those that were found are still followed
			said = err.Error()
			logger.Warn("Failed to resolve the name of the peers", "name", a.host, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (a Addresses) withPort(hosts []string) []string {
	addresses := make([]string, 0, len(hosts))
	for _, host := range hosts {
		addresses = append(addresses, net.JoinHostPort(host, a.port))
	}
	return addresses
}

// slice is what is kept of an EndpointSlice.
type slice struct{ addresses []string }

// followSlices follows the EndpointSlices of the Service. Endpoints that are not ready count too: they hold agents as well.
func (a Addresses) followSlices(ctx context.Context, client kubernetes.Interface, namespace string, report func([]string)) {
	changed := signal.New()
	api, selector := client.DiscoveryV1().EndpointSlices(namespace), discoveryv1.LabelServiceName+"="+a.service
	store := follow.New(follow.Options[*discoveryv1.EndpointSlice, *slice]{
		List: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return api.List(ctx, o)
		},
		Watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return api.Watch(ctx, o)
		},
		Kind: &discoveryv1.EndpointSlice{}, Reduce: func(s *discoveryv1.EndpointSlice, _ *slice) *slice { return &slice{addressesOf(s)} },
		Changed: func(*slice, *slice) { changed.Give() }, Vanished: func([]*slice) { changed.Give() },
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

// portName is that of the Service's port for agents. A Service with one port needs no name.
const portName = "grpc"

func addressesOf(s *discoveryv1.EndpointSlice) []string {
	var port int32
	for _, p := range s.Ports {
		if p.Port != nil && (len(s.Ports) == 1 || p.Name != nil && *p.Name == portName) {
			port = *p.Port
		}
	}
	if port == 0 {
		return nil
	}
	var addresses []string
	for _, e := range s.Endpoints {
		for _, host := range e.Addresses {
			addresses = append(addresses, net.JoinHostPort(host, strconv.Itoa(int(port))))
		}
	}
	return addresses
}

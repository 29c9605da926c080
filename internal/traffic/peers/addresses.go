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

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
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

// ServicePort is the name of the Service's port for agents. A Service with one port needs no name.
const ServicePort = "grpc"

// OfService reports whether they are those of a Service.
func (a Addresses) OfService() bool { return a.service != "" }

// Endpoints follows the EndpointSlices of a Service in the program's namespace until the context ends, and reports all addresses: at first,
// and again after each change. A Service with several ports needs one of the given name.
type Endpoints func(ctx context.Context, service, port string, report func(addresses []string))

// Follow follows the addresses until the context ends, and reports all of them: at first, and again after each change. endpoints is
// needed for those of a Service only.
func (a Addresses) Follow(ctx context.Context, endpoints Endpoints, report func([]string), logger *slog.Logger) {
	switch {
	case a.service != "":
		endpoints(ctx, a.service, ServicePort, report)
	case a.host != "":
		a.followNames(ctx, report, logger)
	default:
		report(a.static)
		<-ctx.Done()
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

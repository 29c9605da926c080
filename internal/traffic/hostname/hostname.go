// Package hostname is how programs look up the name of whom they connect to by gRPC.
package hostname

import (
	"fmt"
	"net"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
)

// DialOptions returns the options of a connection to a host by its name. gRPC looks for no service config in the TXT records of that name:
// there is none, and a DNS that does not answer, while /etc/hosts has the name, would hold up each connection for half a minute. A name
// that is not known is an error that says so: gRPC's own is "produced zero addresses", without the name. Of several addresses that the name has,
// those that are given are tried after all others, in their order. None is left out: behind one address there may be several hosts.
func DialOptions(last ...string) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithDisableServiceConfig(), grpc.WithResolvers(saying{resolver.Get("dns"), last})}
}

// saying makes the resolvers that another one makes say which name is not known.
type saying struct {
	resolver.Builder

	last []string
}

// Build implements resolver.Builder.
func (s saying) Build(target resolver.Target, to resolver.ClientConn, o resolver.BuildOptions) (resolver.Resolver, error) {
	name := target.Endpoint()
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	return s.Builder.Build(target, client{to, name, s.last}, o)
}

// client is told of a connection's addresses.
type client struct {
	resolver.ClientConn

	name string
	last []string
}

// UpdateState implements resolver.ClientConn.
func (c client) UpdateState(found resolver.State) error {
	if len(found.Addresses) > 0 || len(found.Endpoints) > 0 {
		found.Endpoints = slices.Clone(found.Endpoints)
		slices.SortStableFunc(found.Endpoints, func(a, b resolver.Endpoint) int { return c.rank(a) - c.rank(b) })
		return c.ClientConn.UpdateState(found)
	}
	err := fmt.Errorf("no such host: %q: correct the address of whom to connect to, or the DNS record", c.name)
	c.ReportError(err)
	return err // it is looked up again
}

// rank orders endpoints, each of which is one address of the name.
func (c client) rank(e resolver.Endpoint) int {
	return slices.IndexFunc(c.last, func(address string) bool {
		return slices.ContainsFunc(e.Addresses, func(a resolver.Address) bool { return a.Addr == address })
	})
}

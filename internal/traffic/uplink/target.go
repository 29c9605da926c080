package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/balancer/rls" // by which xds has it look up agents
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/xds" // the resolver of xds:///NAME
	"google.golang.org/grpc/xds/bootstrap"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/tunnel"
)

// Ways to name the principals, beside the host name of one. They are gRPC's own names of them.
const (
	schemeDNS  = "dns://"
	schemeXDS  = "xds:///"
	schemeUnix = "unix:"
)

// checkTarget accepts the ways to name principals.
func checkTarget(address string) error {
	if path, ok := strings.CutPrefix(address, schemeUnix); ok {
		return settings.NonEmpty(path)
	}
	server, host, several := cutDNS(address)
	if err := settings.Host(server); err != nil && settings.HostPort(server) != nil {
		return fmt.Errorf("the DNS server of %sSERVER/HOST: %w", schemeDNS, err)
	}
	if !several {
		host = strings.TrimPrefix(host, schemeXDS)
	}
	if err := errors.Join(settings.NonEmpty(host), settings.Host(host)); err != nil {
		return fmt.Errorf("%w; or one of %s[SERVER]/HOST, %sNAME and %sPATH", err, schemeDNS, schemeXDS, schemeUnix)
	}
	return nil
}

// cutDNS returns what of an address names a DNS server, empty for the system's, and what the name whose addresses are meant. If it is no such
// address, the host is all of it.
func cutDNS(address string) (server, host string, several bool) {
	rest, several := strings.CutPrefix(address, schemeDNS)
	if !several {
		return "", address, false
	}
	server, host, _ = strings.Cut(rest, "/")
	return server, host, true
}

// inTurns has streams go to all principals in turns.
const inTurns = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// target returns gRPC's name of the principals, and options for it.
func (s *Settings) target(material *certs.Source) (target string, options []grpc.DialOption) {
	if strings.HasPrefix(s.address, schemeXDS) {
		registerBootstrap(material)
		return s.address, tunnel.XDSDialOptions()
	}
	options = tunnel.DialOptions()
	if s.domain != "" {
		options = append(options, grpc.WithAuthority(s.domain))
	}
	port := strconv.Itoa(s.port)
	switch server, host, several := cutDNS(s.address); {
	case several:
		return schemeDNS + server + "/" + net.JoinHostPort(host, port), append(options, grpc.WithDefaultServiceConfig(inTurns))
	case strings.HasPrefix(s.address, schemeUnix):
		return s.address, options
	default:
		return net.JoinHostPort(s.address, port), options
	}
}

// bootstrapCredentials are what "channel_creds" of gRPC's bootstrap file may name beside gRPC's own: the program's own certificate and CAs, also
// those of the SPIFFE Workload API, which gRPC cannot read.
type bootstrapCredentials struct{ material *certs.Source }

// BootstrapCredentials is the name of these credentials. Their configuration may have "server_spiffe_id": the SPIFFE ID of xds.
const BootstrapCredentials = "argocd_agent"

// registering keeps programs in one process, such as tests, from registering at the same time. gRPC knows one registry.
var registering sync.Mutex //nolint:gochecknoglobals // it guards gRPC's

func registerBootstrap(material *certs.Source) {
	registering.Lock()
	defer registering.Unlock()
	bootstrap.RegisterChannelCredentials(bootstrapCredentials{material})
}

// Name implements [bootstrap.ChannelCredentials].
func (bootstrapCredentials) Name() string { return BootstrapCredentials }

// Build implements [bootstrap.ChannelCredentials].
func (c bootstrapCredentials) Build(raw json.RawMessage) (credentials.Bundle, func(), error) {
	var config struct {
		ServerID string `json:"server_spiffe_id"`
	}
	options := certs.ClientOptions{Source: c.material}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &config); err != nil {
			return nil, nil, fmt.Errorf("the configuration of %s: %w", BootstrapCredentials, err)
		}
	}
	if config.ServerID != "" {
		var err error
		if options.ServerID, err = spiffeid.FromString(config.ServerID); err != nil {
			return nil, nil, fmt.Errorf("server_spiffe_id: %w", err)
		}
	}
	return bundle{certs.ClientCredentials(options)}, func() {}, nil
}

// bundle is transport credentials without any for single calls.
type bundle struct {
	transport credentials.TransportCredentials
}

// TransportCredentials implements [credentials.Bundle].
func (b bundle) TransportCredentials() credentials.TransportCredentials { return b.transport }

// PerRPCCredentials implements [credentials.Bundle].
func (b bundle) PerRPCCredentials() credentials.PerRPCCredentials { return nil }

// NewWithMode implements [credentials.Bundle]. There are no modes.
func (b bundle) NewWithMode(string) (credentials.Bundle, error) { return b, nil }

// Package uplink connects the hub's components to the principal: their settings for that, and the gRPC connection.
package uplink

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

const (
	// firstBackoff and lastBackoff are waits between attempts to connect. gRPC's own go up to two minutes, and whoever looks
	// at a spoke would wait that long for a principal that is back.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 5 * time.Second
	// connectTimeout is how long one attempt may take at least.
	connectTimeout = 10 * time.Second
)

// Settings are how to reach the principal.
type Settings struct {
	address   string
	port      int
	tls       certs.Settings
	workload  certs.WorkloadAPI
	plaintext bool
	domain    string
	keepAlive time.Duration
}

// AgentDomain is the domain of agents in the :authority of what is for them, empty if that names the principal.
func (s *Settings) AgentDomain() string { return s.domain }

// Declare declares the settings. Their environment variables begin with the prefix, such as "ARGOCD_KUBEPROXY".
func (s *Settings) Declare(set *settings.Set, prefix string) {
	set.String(&s.address, "principal-address", prefix+"_PRINCIPAL_ADDRESS", "argocd-agent-principal",
		"host name of the principal; or of several, as dns://[SERVER]/HOST for all addresses that a name has in DNS in turns, unix:PATH for the socket of an Envoy, or xds:///NAME for "+
			"gRPC's own xDS client, whose bootstrap file GRPC_XDS_BOOTSTRAP names", settings.NonEmpty, checkTarget)
	set.Int(&s.port, "principal-port", prefix+"_PRINCIPAL_PORT", 8443, "port of the principal", settings.Port)
	s.tls.DeclarePair(set, certs.Flags{
		Files: []certs.Flag{
			{Name: "principal-client-cert", Variable: prefix + "_PRINCIPAL_CLIENT_CERT_PATH", Usage: "file of the certificate that the principal sees"},
			{Name: "principal-client-key", Variable: prefix + "_PRINCIPAL_CLIENT_KEY_PATH", Usage: "file of the key of that certificate"},
		},
		Required: true, Hint: "create it with: argocd-agentctl pki issue component",
	})
	s.tls.DeclareRoots(set, certs.Flags{
		Files: []certs.Flag{{
			Name: "principal-ca-path", Variable: prefix + "_PRINCIPAL_ROOT_CA_PATH", Usage: "file of the CA that the principal's certificate comes from",
		}},
		Required: true,
	})
	s.workload.Declare(set)
	s.tls.Workload, s.tls.Plaintext = &s.workload, &s.plaintext
	s.tls.DeclareServerID(set, prefix)
	set.Bool(&s.plaintext, "principal-insecure-plaintext", prefix+"_PRINCIPAL_INSECURE_PLAINTEXT", false,
		"INSECURE: connect to the principal without TLS, through the sidecar of a service mesh")
	set.String(&s.domain, "agent-domain", prefix+"_AGENT_DOMAIN", "",
		"domain of agents: what is for berlin has the :authority berlin.DOMAIN, by which an Envoy that xds configures finds the principal that serves it; "+
			"with --principal-insecure-plaintext only", settings.DNSSubdomain)
	set.Rule(func() error {
		if s.domain != "" && !s.plaintext {
			return errors.New("over TLS the :authority is the principal's: an Envoy beside this program is reached with --principal-insecure-plaintext")
		}
		return nil
	}, "agent-domain", "principal-insecure-plaintext")
	set.Duration(&s.keepAlive, "keep-alive-ping-interval", prefix+"_KEEP_ALIVE_PING_INTERVAL", 10*time.Second,
		"how often to see whether a quiet connection to the principal still works; at least 10s, 0 for never",
		settings.OffOrAtLeast(10*time.Second))
}

// Workload is where the SPIFFE Workload API is, for what else of the program comes from there.
func (s *Settings) Workload() *certs.WorkloadAPI { return &s.workload }

// Certificates returns the certificate for the principal and the principal's CA. The name is that of the Source.
func (s *Settings) Certificates(name string, logger *slog.Logger, metrics *certs.Metrics) (*certs.Source, error) {
	return s.tls.Source(name, nil, logger, metrics)
}

// Connect returns a connection to the principal. It is opened when it is first used, and again when there is a newer certificate.
// more are options of the program's.
func (s *Settings) Connect(material *certs.Source, more ...grpc.DialOption) (*Conn, error) {
	target, options := s.target(material)
	options = append(options,
		grpc.WithTransportCredentials(certs.ClientCredentials(certs.ClientOptions{Source: material, ServerID: s.tls.ServerID()})),
		identity.NewSession().DialOption(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: lastBackoff},
			MinConnectTimeout: connectTimeout,
		}),
	)
	if s.keepAlive > 0 {
		options = append(options, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: s.keepAlive, Timeout: s.keepAlive}))
	}
	options = append(options, more...)
	open := func() (*grpc.ClientConn, error) { return grpc.NewClient(target, options...) }
	// What cannot be dialled at all is said now.
	first, err := open()
	if err != nil {
		return nil, fmt.Errorf("--principal-address and --principal-port: %w", err)
	}
	_ = first.Close() // it was not used
	return &Conn{open: open, material: material, all: make(map[*generation]struct{})}, nil
}

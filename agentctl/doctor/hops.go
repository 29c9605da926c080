package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

var errNotAsked = errors.New("not asked")

const (
	// hopTimeout is how long one hop may take.
	hopTimeout = 10 * time.Second
	// refusalTimeout is how long a principal has to refuse a stream. One that does not waits for a hello, which never comes: with one,
	// the stream would take the place of the agent's own.
	refusalTimeout = 3 * time.Second
)

// dial does what the agent does to connect, by its certificate, from here: DNS, TCP, TLS, and a stream that is not used.
func (w *walk) dial(ctx context.Context) []checks.Check {
	name := func(hop string) string { return hop + " to the principal" }
	if w.PrincipalAddress == "" {
		return []checks.Check{checks.Skip(name("DNS, TCP, TLS"), "give --principal-address as the agent has it, host:port, and run this where the agent's network is")}
	}
	host, _, err := net.SplitHostPort(w.PrincipalAddress)
	if err != nil {
		return []checks.Check{checks.Err(name("DNS"), "", err)}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*hopTimeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	made := []checks.Check{checks.Err(name("DNS"), fmt.Sprint(addresses), remedy(err, "correct --server-address of the agent, or the record"))}
	if err != nil {
		return made
	}
	connection, err := (&net.Dialer{Timeout: hopTimeout}).DialContext(ctx, "tcp", w.PrincipalAddress)
	made = append(made, checks.Err(name("TCP"), w.PrincipalAddress, remedy(err, "look at the principal's Service, at firewalls and NetworkPolicies between them, and at --server-port")))
	if err != nil {
		return made
	}
	defer connection.Close()
	if w.Spoke != nil {
		if c, lacks := w.lacking(ctx, name("TLS"), w.Spoke, secrets(ca.AgentSecret, ca.SecretName)...); lacks {
			return append(made, c)
		}
	}
	config, skip := w.clientTLS(ctx, host)
	if config == nil {
		return append(made, checks.Skip(name("TLS"), skip))
	}
	secured := tls.Client(connection, config)
	err = secured.HandshakeContext(ctx)
	detail := ""
	if err == nil {
		detail = secured.ConnectionState().PeerCertificates[0].Subject.String()
	}
	made = append(made, checks.Err(name("TLS"), detail, remedy(err, tlsRemedy(err))))
	if err != nil {
		return made
	}
	return append(made, stream(ctx, w.PrincipalAddress, config))
}

// explainedError says itself what to do.
type explainedError struct{ error }

// tlsRemedy says what to do about a handshake that failed.
func tlsRemedy(err error) string {
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	var verification *tls.CertificateVerificationError
	switch {
	case errors.As(err, new(explainedError)):
		return ""
	case errors.As(err, &name) && len(name.Certificate.DNSNames)+len(name.Certificate.IPAddresses) == 0 && len(name.Certificate.URIs) == 1:
		return fmt.Sprintf("the principal is known by its SPIFFE ID, %s: have the agent know it so by --principal-spiffe-id, or %s in ConfigMap %s",
			name.Certificate.URIs[0], manifest.ServerIDKey, paramsConfigMap)
	case errors.As(err, &name):
		return "issue a certificate for that name by argocd-agentctl pki issue principal --dns --upsert, or --ip"
	case errors.As(err, &unknown):
		return "have the agent trust the principal's CA with: argocd-agentctl pki propagate"
	case errors.As(err, &verification):
		return "renew the principal's certificate with: argocd-agentctl pki issue principal --upsert"
	default: // nobody has shown a certificate
		return "is it the principal that answers there? Look at its log, at --server-port, and at load balancers and proxies between them"
	}
}

// remedy adds to an error what to do about it.
func remedy(err error, what string) error {
	if err == nil || what == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, what)
}

// clientTLS returns what the agent connects with, or why that is not known.
func (w *walk) clientTLS(ctx context.Context, host string) (*tls.Config, string) {
	if w.Spoke == nil {
		return nil, "the agent's certificate is on its cluster, which was not given, or is not reached: give --agent-context"
	}
	origin, err := agents.OriginOfAgent(ctx, w.Spoke)
	if err != nil {
		return nil, err.Error()
	}
	if origin.Elsewhere != "" {
		return nil, "the agent has its identity from " + origin.Elsewhere + ", which is not to be had here: its stream, below, says whether the principal takes it"
	}
	own, err := w.Spoke.Get(ctx, ca.AgentSecret)
	if err != nil || own == nil {
		return nil, w.Spoke.Secret(ca.AgentSecret) + " cannot be read or is not there: the agent may have its certificate from elsewhere"
	}
	roots, err := w.Spoke.Get(ctx, ca.SecretName)
	if err != nil || roots == nil {
		return nil, w.Spoke.Secret(ca.SecretName) + " cannot be read or is not there"
	}
	pair, err := ca.PairIn(own.Data)
	if err != nil {
		return nil, err.Error()
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err.Error()
	}
	trusted, err := ca.ReadTrusted(roots, w.Spoke)
	if err != nil {
		return nil, err.Error()
	}
	pool := x509.NewCertPool()
	for _, one := range trusted.Certificates {
		pool.AddCert(one)
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: pool, Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"},
	}
	if origin.ServerID == "" {
		return config, ""
	}
	id, err := spiffeid.FromString(origin.ServerID)
	if err != nil {
		return nil, fmt.Sprintf("the agent's --principal-spiffe-id, %q: %v", origin.ServerID, err)
	}
	config.InsecureSkipVerify = true // as the agent itself: by the ID, and not by the host's name
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if err := certs.VerifyServer(state.PeerCertificates, trusted.PEM, id); err != nil {
			return explainedError{err}
		}
		return nil
	}
	return config, ""
}

// stream opens a Sync stream, and waits whether the principal refuses it.
func stream(ctx context.Context, address string, config *tls.Config) checks.Check {
	const name = "identity and authorisation of the agent at the principal"
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(config.Clone())), grpc.WithDisableServiceConfig())
	if err != nil {
		return checks.Err(name, "", err)
	}
	defer func() { _ = connection.Close() }() // nothing was sent
	opened, err := syncv1.NewSyncClient(connection).Connect(ctx)
	if err == nil {
		_, err = opened.Recv()
	}
	if status.Code(err) == codes.DeadlineExceeded { // of this side or of the principal's: it waited for a hello
		return checks.Of(name, "not refused")
	}
	return checks.Err(name, "", remedy(err, "the principal's log says which certificate it saw"))
}

// kube asks the agent's cluster as argocd-server does: by the cluster Secret, through kubeproxy and the agent.
func (w *walk) kube(ctx context.Context) checks.Check {
	const name = "argocd-server's cluster connection, and the Kubernetes API through the tunnel"
	if c, lacks := w.lacking(ctx, name, w.Hub, listSecrets()); lacks {
		return c
	}
	found, err := agents.Find(ctx, w.Hub, w.Agent)
	if err != nil {
		return checks.Err(name, "", err)
	}
	known, err := argocd.ReadCluster(found)
	if err != nil {
		return checks.Err(name, "", err)
	}
	if known.BySidecar() {
		return checks.Skip(name, "the sidecar of argocd-server proves who it is, and is not here: kubeproxy's log says whom it refuses")
	}
	address, err := url.Parse(known.Server)
	if err != nil {
		return checks.Err(name, "", fmt.Errorf("server: %w", err))
	}
	config := &rest.Config{
		Host: known.Server, BearerToken: known.Access.BearerToken, Timeout: hopTimeout,
		TLSClientConfig: rest.TLSClientConfig{CertData: known.Access.TLS.Certificate, KeyData: known.Access.TLS.Key, CAData: known.Access.TLS.CAData},
	}
	dialled := address.Host
	if w.ResourceProxy != "" {
		config.ServerName, dialled = address.Hostname(), w.ResourceProxy
		config.Host = "https://" + w.ResourceProxy + address.Path
	}
	connection, err := (&net.Dialer{Timeout: hopTimeout}).DialContext(ctx, "tcp", dialled)
	if err != nil && w.ResourceProxy == "" {
		return checks.Skip(name, fmt.Sprintf("the resource proxy is not reached from here (%v): give --resource-proxy-server, such as of kubectl port-forward", err))
	}
	if err != nil {
		return checks.Err(name, "", remedy(err, "look at kubeproxy and its Service"))
	}
	_ = connection.Close()
	version, err := cluster.VersionOf(ctx, config)
	return checks.Err(name, version, remedy(err, "kubeproxy's log, and the agent's, say why"))
}

// Package envoy runs real Envoys: the sidecars and gateways of a service mesh, with a configuration that does not change. Each has one
// listener and one backend.
package envoy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// What a listener does with the header x-forwarded-client-cert: Envoy's forward_client_cert_details.
const (
	SanitizeSet   = "SANITIZE_SET"        // replaces what the client sends; the right one before a backend
	AppendForward = "APPEND_FORWARD"      // appends to what the client sends, if that has a certificate: for several proxies in a row
	AlwaysForward = "ALWAYS_FORWARD_ONLY" // passes on whatever the client sends: a mistake
)

// Options declare an Envoy.
type Options struct {
	Name     string // of its log
	Listener Listener
	Backend  Backend
	// WorkloadAPI is the address of the SPIRE agent that gives the Envoy certificates and trusted CAs by SDS, as
	// unix:///path; required with an Identity that has a SPIFFE ID.
	WorkloadAPI string
}

// Listener is where clients come.
type Listener struct {
	// Identity is what clients see, and which CA theirs come from. They speak plain text without it.
	Identity *Identity
	// Anonymous lets clients come without a certificate.
	Anonymous bool
	// Forward is SanitizeSet if it is empty.
	Forward string
	// ForwardCertificate puts the client's whole certificate into the header.
	ForwardCertificate bool
	// ForwardSubject puts its subject there, which Envoy quotes.
	ForwardSubject bool
	// Headers are set on each request, in place of what the client sends, and after Forward: what somebody does who lies.
	Headers map[string]string
}

// Backend is where requests go.
type Backend struct {
	Address string // host:port, or the path of a Unix socket
	// Identity is what the backend sees, and which CA its own comes from. It speaks plain text without it.
	Identity *Identity
	// HTTP1 speaks HTTP/1.1 to it, in place of HTTP/2.
	HTTP1 bool
	// Renew opens a new connection after so long, for requests that come then: without it an Envoy shows the certificate that it had at
	// the first one as long as that connection lasts. Zero for never.
	Renew time.Duration
}

// Identity is what an Envoy shows, and whom it trusts: either a certificate, its key, and the CA of the other side, in PEM form, of which
// the certificate may be missing, and the CA of a listener that asks nobody for a certificate; or a SPIFFE ID, whose X.509-SVIDs and
// bundles come from SPIRE's agent by SDS.
type Identity struct {
	Certificate, Key, CA []byte

	SPIFFEID string
	// Peer is the SPIFFE ID that the other side has to have; any of the own trust domain and of those that are federated if it is empty.
	Peer string
}

// RenewedLine is what an Envoy logs for each new certificate, and each new bundle, of SPIRE's.
const RenewedLine = "Secret is updated."

// Envoy is a running Envoy.
type Envoy struct {
	*process.Process

	Address string // host:port that it listens on
	admin   string // URL of its administration
}

// Start runs an Envoy, and returns when it serves.
func Start(ctx context.Context, h *host.Host, program string, options Options) (*Envoy, error) {
	return start(ctx, h, program, options.Name, options.bootstrap)
}

// start runs an Envoy with the bootstrap configuration for its ports: that of its listener, and that of its administration.
func start(ctx context.Context, h *host.Host, program, name string, bootstrap func(in, admin int) ([]byte, error)) (*Envoy, error) {
	name = h.Unique(name)
	file := filepath.Join("envoy", name+".yaml")
	path := filepath.Join(h.Dir(), file)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	p, ports, err := h.Define(host.Program{
		Name: name, Path: program, Ports: 2,
		Args: func([]int) []string {
			// Several on one machine each need a base id; one worker is enough.
			return []string{
				"--use-dynamic-base-id", "--concurrency", "1", "--config-path", path, "--service-node", name, "--service-cluster", "lab",
				"--component-log-level", "config:debug", // RenewedLine
			}
		},
		Ready: func(ports []int) func(context.Context) error {
			return process.Answers(client, "http://"+port.Address(ports[1])+"/ready")
		},
	})
	if err != nil {
		return nil, err
	}
	config, err := bootstrap(ports[0], ports[1])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := h.Write(file, config); err != nil {
		return nil, err
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return &Envoy{Process: p, Address: port.Address(ports[0]), admin: "http://" + port.Address(ports[1])}, nil
}

// Connections is how many connections to the backend there are.
func (e *Envoy) Connections(ctx context.Context) (int, error) {
	const name = "cluster.backend.upstream_cx_active"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.admin+"/stats?filter=^"+name+"$", http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	value, ok := strings.CutPrefix(strings.TrimSpace(string(text)), name+": ")
	if !ok {
		return 0, fmt.Errorf("%s: it has no %s: %s", e.Name(), name, text)
	}
	return strconv.Atoi(value)
}

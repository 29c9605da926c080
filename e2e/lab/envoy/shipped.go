package envoy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
)

// Sidecar declares an Envoy with the configuration that this project ships for it.
type Sidecar struct {
	Name   string // of its log
	Config string // path of deploy/envoy/sidecar.yaml
	// Certificates is the folder of what it shows to principals and xds: tls.crt, tls.key and ca.crt.
	Certificates string
	XDS          []string // host:port of each
	// Wrong replaces more of it, for what is not as it should be.
	Wrong map[string]string
}

// Lines of deploy/envoy/sidecar.yaml that say what is where in a Pod.
const (
	shippedAdmin        = "port_value: 15000"
	shippedListener     = "port_value: 15001"
	shippedCertificates = "/etc/argocd-agent/tls"
	shippedXDS          = "              - endpoint: { address: { socket_address: { address: argocd-agent-xds, port_value: 18000 } } }\n"
)

// StartSidecar runs an Envoy with the configuration that this project ships, but for what is elsewhere on this machine. It returns when the
// Envoy serves.
func StartSidecar(ctx context.Context, h *host.Host, program string, options Sidecar) (*Envoy, error) {
	return start(ctx, h, program, options.Name, func(in, admin int) ([]byte, error) {
		text, err := os.ReadFile(filepath.Clean(options.Config))
		if err != nil {
			return nil, err
		}
		var servers strings.Builder
		for _, address := range options.XDS {
			host, number, _ := strings.Cut(address, ":")
			servers.WriteString(strings.NewReplacer("argocd-agent-xds", host, "18000", number).Replace(shippedXDS))
		}
		here := map[string]string{
			shippedAdmin: fmt.Sprintf("port_value: %d", admin), shippedListener: fmt.Sprintf("port_value: %d", in),
			shippedCertificates: options.Certificates, shippedXDS: servers.String(),
		}
		maps.Copy(here, options.Wrong)
		return replace(string(text), here)
	})
}

// replace replaces what is elsewhere here, and fails if the text has no such thing.
func replace(text string, here map[string]string) ([]byte, error) {
	for shipped, ours := range here {
		if !strings.Contains(text, shipped) {
			return nil, fmt.Errorf("the shipped configuration has no %q any more", shipped)
		}
		text = strings.ReplaceAll(text, shipped, ours)
	}
	return []byte(text), nil
}

// Admin is the URL of its administration.
func (e *Envoy) Admin() string { return e.admin }

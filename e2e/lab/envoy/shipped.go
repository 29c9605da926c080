package envoy

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
)

// Shipped declares an Envoy with a configuration that this project ships, one of deploy/envoy.
type Shipped struct {
	Name   string // of its log
	Config string // path of the file
	// Listener is the text that says where it listens, such as "{ address: 0.0.0.0, port_value: 8443 }".
	Listener string
	// Here is what else is elsewhere on this machine, by the texts of the file.
	Here map[string]string
}

// Texts of the shipped files that say what is where in a Pod.
const (
	ShippedCertificates = "/etc/argocd-agent/tls"
	ShippedXDS          = "              - endpoint: { address: { socket_address: { address: argocd-agent-xds, port_value: 18000 } } }\n"
	ShippedPrincipals   = "              - endpoint: { address: { socket_address: { address: argocd-agent-principal-peers, port_value: 8443 } } }\n"

	shippedAdmin = "{ address: 127.0.0.1, port_value: 15000 }"
)

// Endpoints is a line such as ShippedXDS for each address, host:port.
func Endpoints(addresses []string) string {
	var lines strings.Builder
	for _, address := range addresses {
		lines.WriteString("              - endpoint: { address: { socket_address: " + socketAddress(address) + " } }\n")
	}
	return lines.String()
}

func socketAddress(address string) string {
	host, number, _ := strings.Cut(address, ":")
	return "{ address: " + host + ", port_value: " + number + " }"
}

// StartShipped runs an Envoy with a configuration that this project ships, but for what is elsewhere on this machine. It returns when the
// Envoy serves.
func StartShipped(ctx context.Context, h *host.Host, program string, options Shipped) (*Envoy, error) {
	return start(ctx, h, program, options.Name, func(in, admin int) ([]byte, error) {
		text, err := os.ReadFile(filepath.Clean(options.Config))
		if err != nil {
			return nil, err
		}
		here := maps.Clone(options.Here)
		here[shippedAdmin], here[options.Listener] = socketAddress(port.Address(admin)), socketAddress(port.Address(in))
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

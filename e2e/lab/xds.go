package lab

import (
	"context"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// XDS is an xds on the hub.
type XDS struct {
	*process.Process

	Address    string // host:port that it listens on, once it knows of all principals
	MetricsURL string // of its Prometheus metrics
	HealthURL  string // to append /healthz or /readyz to
}

// NewXDS makes an xds that follows these principals, host:port, for the caller to Start.
func (l *Lab) NewXDS(ctx context.Context, principals []string, args ...string) (*XDS, error) {
	if err := l.build(ctx); err != nil {
		return nil, err
	}
	name := l.Host.Unique("hub-xds")
	own, err := l.mounted(ctx, xdsSecret)
	if err != nil {
		return nil, err
	}
	flags, err := l.certificateFlags(name, own, "--root-ca-path", "--tls-cert", "--tls-key")
	if err != nil {
		return nil, err
	}
	p, ports, err := l.Host.Define(host.Program{
		Name: name, Path: l.binary("xds"), Ports: 3,
		Args: func(ports []int) []string {
			return append(append(flags,
				"--listen-host=127.0.0.1", "--listen-port="+strconv.Itoa(ports[0]), "--metrics-port="+strconv.Itoa(ports[1]), "--healthz-port="+strconv.Itoa(ports[2]),
				"--principals="+strings.Join(principals, ","), "--route-lookup-service=passthrough:///"+principals[0],
			), args...)
		},
		Ready: answering(2, "/healthz"),
	})
	if err != nil {
		return nil, err
	}
	return &XDS{
		Process: p, Address: port.Address(ports[0]),
		MetricsURL: "http://" + port.Address(ports[1]) + "/metrics", HealthURL: "http://" + port.Address(ports[2]),
	}, nil
}

// StartSidecar runs an Envoy with the configuration that is shipped for the sidecar of kubeproxy or redisproxy, whose certificate it shows.
// wrong replaces texts of that configuration, for what is not as it should be; it may be nil.
func (l *Lab) StartSidecar(ctx context.Context, program string, wrong map[string]string, servers ...*XDS) (*envoy.Envoy, error) {
	client, err := l.mounted(ctx, "argocd-agent-"+program+"-tls")
	if err != nil {
		return nil, err
	}
	name := l.Host.Unique(program + "-sidecar")
	if _, err := l.certificateFlags(name, client, "", "", ""); err != nil {
		return nil, err
	}
	addresses := make([]string, len(servers))
	for i, s := range servers {
		addresses[i] = s.Address
	}
	here := map[string]string{
		envoy.ShippedCertificates: filepath.Join(l.Host.Dir(), CertificateFile(name, "")), envoy.ShippedXDS: envoy.Endpoints(addresses),
	}
	maps.Copy(here, wrong)
	return l.startShipped(ctx, envoy.Shipped{Name: name, Config: "sidecar.yaml", Listener: "{ address: 127.0.0.1, port_value: 15001 }", Here: here})
}

// StartEdge runs an Envoy with one of the configurations that are shipped for the hub's edge, in front of these principals, host:port. own
// is its certificate, and may be nil where it needs none.
func (l *Lab) StartEdge(ctx context.Context, config string, own *Certificates, principals ...string) (*envoy.Envoy, error) {
	name := l.Host.Unique("hub-edge")
	here := map[string]string{envoy.ShippedPrincipals: envoy.Endpoints(principals)}
	if own != nil {
		if _, err := l.certificateFlags(name, own, "", "", ""); err != nil {
			return nil, err
		}
		here[envoy.ShippedCertificates] = filepath.Join(l.Host.Dir(), CertificateFile(name, ""))
	}
	return l.startShipped(ctx, envoy.Shipped{Name: name, Config: config, Listener: "{ address: 0.0.0.0, port_value: 8443 }", Here: here})
}

// startShipped runs an Envoy with one of the files of deploy/envoy.
func (l *Lab) startShipped(ctx context.Context, options envoy.Shipped) (*envoy.Envoy, error) {
	options.Config = filepath.Join(l.repository, "deploy", "envoy", options.Config)
	return envoy.StartShipped(ctx, l.Host, l.Tools.Program(toolset.Envoy), options)
}

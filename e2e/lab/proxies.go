package lab

import (
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
)

// Proxy is a kubeproxy or a redisproxy on the hub.
type Proxy struct {
	*process.Process

	Address    string     // host:port that it listens on
	MetricsURL string     // of its Prometheus metrics
	HealthURL  string     // to append /healthz or /readyz to
	Principal  *link.Link // between it and its principal; nil when the lab is direct
}

// ProxyOptions change a proxy from what the lab would run.
type ProxyOptions struct {
	Principal   *Principal // whom it dials; the lab's first one when nil
	Args        []string   // more flags, as --flag=value; a flag given again wins
	Env         []string   // as KEY=value
	WorkloadAPI string     // as a principal's; for its connection to the principal alone
	Programs    string     // as a principal's
}

// AllAgents is the SPIFFE ID whose certificate lets a caller of a kubeproxy reach every agent, under /agents/.
const AllAgents = "spiffe://example.org/argocd-server"

// NewKubeproxy makes a kubeproxy on the hub, for the caller to Start.
func (l *Lab) NewKubeproxy(ctx context.Context, options ProxyOptions) (*Proxy, error) {
	name := l.Host.Unique("hub-kubeproxy")
	server, err := l.mounted(ctx, resourceProxySecret)
	if err != nil {
		return nil, err
	}
	flags, err := l.certificateFlags(name, server, "--root-ca-path", "--tls-cert", "--tls-key")
	if err != nil {
		return nil, err
	}
	return l.newProxy(ctx, name, "kubeproxy", options, append(flags, "--callers="+strings.Join(append(identity.DefaultCallers(), AllAgents+"=*"), ",")))
}

// NewRedisproxy makes a redisproxy on the hub, for the caller to Start.
func (l *Lab) NewRedisproxy(ctx context.Context, options ProxyOptions) (*Proxy, error) {
	return l.newProxy(ctx, l.Host.Unique("hub-redisproxy"), "redisproxy", options,
		[]string{"--redis-address=" + l.Hub.ArgoCD.RedisAddress})
}

// uplinkFlags are those of the certificate that the principal knows a proxy by.
func (l *Lab) uplinkFlags(ctx context.Context, name, program, workloadAPI string) ([]string, error) {
	if workloadAPI != "" {
		return nil, nil
	}
	client, err := l.mounted(ctx, "argocd-agent-"+program+"-tls")
	if err != nil {
		return nil, err
	}
	return l.certificateFlags(name+"-client", client, "--principal-ca-path", "--principal-client-cert", "--principal-client-key")
}

// newProxy makes a proxy with a certificate that the principal knows it by.
func (l *Lab) newProxy(ctx context.Context, name, program string, options ProxyOptions, flags []string) (*Proxy, error) {
	if err := l.build(ctx); err != nil {
		return nil, err
	}
	if options.Principal == nil {
		options.Principal = l.Principal
	}
	path, own, err := l.workload(name, l.program(options.Programs, program), options.WorkloadAPI)
	if err != nil {
		return nil, err
	}
	uplink, err := l.uplinkFlags(ctx, name, program, options.WorkloadAPI)
	if err != nil {
		return nil, err
	}
	own = append(own, uplink...)
	cable, address, err := l.link(ctx, name+" to principal", options.Principal.Address)
	if err != nil {
		return nil, err
	}
	l.spread(cable, options.Principal)
	principal, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	p, ports, err := l.Host.Define(host.Program{
		Name: name, Path: path, Env: options.Env, Ports: 3,
		Args: func(ports []int) []string {
			args := []string{
				"--listen-host=127.0.0.1", "--listen-port=" + strconv.Itoa(ports[0]),
				"--metrics-port=" + strconv.Itoa(ports[1]), "--healthz-port=" + strconv.Itoa(ports[2]),
				"--principal-address=" + principal, "--principal-port=" + number,
			}
			return append(append(append(args, own...), flags...), options.Args...)
		},
		Ready: answering(2, "/readyz"),
	})
	if err != nil {
		return nil, err
	}
	return &Proxy{
		Process: p, Principal: cable, Address: port.Address(ports[0]),
		MetricsURL: "http://" + port.Address(ports[1]) + "/metrics",
		HealthURL:  "http://" + port.Address(ports[2]),
	}, nil
}

package reach

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/client"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/xfcc"
)

// proof is how a caller proves to kubeproxy who it is.
type proof struct {
	name    string // as figures call it
	sidecar bool   // by the header x-forwarded-client-cert
	unix    bool   // over a Unix socket, not loopback
	whole   bool   // with the whole certificate in the header
}

func proofs() []proof {
	return []proof{
		{name: "mutual TLS"},
		{name: "header, loopback", sidecar: true},
		{name: "header, Unix socket", sidecar: true, unix: true},
		{name: "header with certificate, Unix socket", sidecar: true, unix: true, whole: true},
	}
}

// caller asks for an object of an Application, by each way to prove who asks. The client is the sidecar: a real one takes more.
func (g *ground) caller(ctx context.Context, contender string) (figures.Sample, error) {
	if err := g.furnish(ctx); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	if contender == figures.Floor {
		var names []string
		for _, p := range proofs() {
			names = append(names, p.name)
		}
		return g.directly(ctx, names)
	}
	var all figures.Sample
	for _, p := range proofs() {
		sample, err := g.proven(ctx, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		all = append(all, named(p.name, sample)...)
	}
	return all, nil
}

// named has figures begin with the way.
func named(way string, sample figures.Sample) figures.Sample {
	var all figures.Sample
	for _, f := range sample {
		f.Name = way + ": " + f.Name
		all = append(all, f)
	}
	return all
}

// directly asks the spoke's API server, which is beside each of the ways.
func (g *ground) directly(ctx context.Context, ways []string) (figures.Sample, error) {
	server := g.Lab.Spoke(spoke)
	config, err := client.For(server, lab.AgentUser, server.Address)
	if err != nil {
		return nil, err
	}
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	sample, err := g.asks(ctx, nil, nil, &route{config: config, client: c})
	var all figures.Sample
	for _, way := range ways {
		all = append(all, named(way, sample)...)
	}
	return all, err
}

// proven asks a kubeproxy of its own.
func (g *ground) proven(ctx context.Context, p proof) (figures.Sample, error) {
	options := lab.ProxyOptions{Args: g.KubeproxyArgs}
	socket := ""
	if p.sidecar {
		options.Args = append(options.Args, "--insecure-plaintext")
	}
	if p.unix {
		dir, err := g.Lab.Host.Folder("kubeproxy")
		if err != nil {
			return nil, err
		}
		socket = filepath.Join(dir, g.Lab.Host.Unique("sock"))
		options.Args = append(options.Args, "--listen-socket="+socket)
	}
	proxy, err := g.Lab.NewKubeproxy(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := proxy.Start(ctx); err != nil {
		return nil, err
	}
	r, err := g.routeBy(p, proxy, socket)
	if err != nil {
		return nil, errors.Join(err, proxy.Stop(context.WithoutCancel(ctx)))
	}
	return g.asks(ctx, proxy, g.programs("kubeproxy", proxy.Process), r)
}

// asks measures one object on a way.
func (g *ground) asks(ctx context.Context, proxy *lab.Proxy, programs []contest.Program, r *route) (figures.Sample, error) {
	defer r.client.CloseIdleConnections()
	return g.metered(ctx, proxy, programs, func(meter *contest.Meter) (figures.Sample, error) { return g.getOne(ctx, meter, r, things()[0]) })
}

// routeBy is a way to a kubeproxy for the agent's caller.
func (g *ground) routeBy(p proof, proxy *lab.Proxy, socket string) (*route, error) {
	if !p.sidecar {
		config, err := g.through(proxy)
		if err != nil {
			return nil, err
		}
		c, err := rest.HTTPClientFor(config)
		return &route{config: config, client: c}, err
	}
	pair, err := g.Lab.CA.IssueClient(pki.ClientOptions{Caller: spoke})
	if err != nil {
		return nil, err
	}
	certificate, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	return &route{config: &rest.Config{Host: "http://" + proxy.Address}, client: sidecar(certificate, p.whole, socket)}, nil
}

// sidecar is a client that says of all requests that they come from whoever has the certificate, by HTTP/2 in plain text.
func sidecar(certificate tls.Certificate, whole bool, socket string) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: forwarding{transport, envoy.ClientCertHeader(certificate.Leaf, whole)}}
}

// forwarding adds a header x-forwarded-client-cert.
type forwarding struct {
	*http.Transport

	header string
}

// RoundTrip implements [http.RoundTripper].
func (f forwarding) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(xfcc.Header, f.header)
	return f.Transport.RoundTrip(r)
}

package reach

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
)

// The ways from a kubeproxy to principals, as figures call them.
const (
	byAddress = "one address"
	byDNS     = "dns:///"
	byXDS     = "xds:///"
	byEnvoy   = "Envoy beside it"
)

// ways asks for an object of an Application, by each way from kubeproxy to the principal. There is one, so none of them has a hop more to go.
func (g *ground) ways(ctx context.Context, contender string) (all figures.Sample, err error) {
	if err := g.furnish(ctx); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	names := []string{byAddress, byDNS, byXDS, byEnvoy}
	if contender == figures.Floor {
		return g.directly(ctx, names)
	}
	server, err := g.Lab.NewXDS(ctx, []string{g.Lab.Principal.Address})
	if err != nil {
		return nil, err
	}
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()
	if err := server.WaitLog(ctx, "Listening for xDS clients"); err != nil {
		return nil, err
	}
	beside, err := g.Lab.StartSidecar(ctx, "kubeproxy", nil, server)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, beside.Stop(context.WithoutCancel(ctx))) }()
	for _, way := range names {
		sample, err := g.along(ctx, way, server, beside)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way, err)
		}
		all = append(all, named(way, sample)...)
	}
	return all, nil
}

// along asks a kubeproxy of its own that reaches the principal by a way.
func (g *ground) along(ctx context.Context, way string, server *lab.XDS, beside *envoy.Envoy) (figures.Sample, error) {
	options := lab.ProxyOptions{Principal: g.Lab.Principal}
	var programs []contest.Program
	switch way {
	case byDNS:
		host, _, err := net.SplitHostPort(g.Lab.Principal.Address)
		if err != nil {
			return nil, err
		}
		options.Args = []string{"--principal-address=dns:///" + host}
	case byXDS:
		file, err := g.Lab.Host.Write("bootstrap/ways.json", fmt.Appendf(nil,
			`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "argocd_agent"}], "server_features": ["xds_v3"]}], "node": {"id": "ways"}}`, server.Address))
		if err != nil {
			return nil, err
		}
		options.Args, options.Env = []string{"--principal-address=xds:///argocd-agent-principal"}, []string{"GRPC_XDS_BOOTSTRAP=" + file}
	case byEnvoy:
		options.Principal = g.Lab.Principal.Behind(beside)
		options.Args = []string{"--principal-insecure-plaintext", "--agent-domain=agents.argocd-agent"}
		programs = append(programs, contest.Program{Name: "Envoy", Process: beside.Process})
	}
	options.Args = append(options.Args, g.KubeproxyArgs...)
	proxy, err := g.Lab.NewKubeproxy(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := proxy.Start(ctx); err != nil {
		return nil, err
	}
	r, err := g.routeBy(proof{}, proxy, "")
	if err != nil {
		return nil, errors.Join(err, proxy.Stop(context.WithoutCancel(ctx)))
	}
	return g.asks(ctx, proxy, append(programs, g.programs("kubeproxy", proxy.Process)...), r)
}

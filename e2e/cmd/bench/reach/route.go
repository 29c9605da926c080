package reach

import (
	"context"
	"fmt"
	"io"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/client"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/figures"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// shownOfErrors is how much of an answer that is none is shown.
const shownOfErrors = 1 << 10

// between is how many programs of ours are between a client and the spoke's API server: kubeproxy, principal and agent.
const between = 3

// route is one way to the spoke's API server, and a client of client-go's making that goes it.
type route struct {
	config *rest.Config
	client *http.Client
}

// travel measures on a contender's way to the spoke's API server.
func (g *ground) travel(ctx context.Context, contender string,
	measure func(*contest.Meter, *route) (figures.Sample, error),
) (figures.Sample, error) {
	if err := g.furnish(ctx); err != nil {
		return nil, fmt.Errorf("preparation: %w", err)
	}
	var config *rest.Config
	var proxy *lab.Proxy
	var programs []contest.Program
	var err error
	switch server := g.Lab.Spoke(spoke); contender {
	case figures.Floor:
		// As the agent, so that the API server has the same to think about.
		config, err = client.For(server, lab.AgentUser, server.Address)
	case figures.Relay:
		var address string
		var end func()
		if address, programs, end, err = g.newRelays(ctx, between, server.Address); err == nil {
			defer end()
			config, err = client.For(server, lab.AgentUser, address)
		}
	default:
		if proxy, err = g.newKubeproxy(ctx); err == nil {
			config, err = g.through(proxy)
			programs = g.programs("kubeproxy", proxy.Process)
		}
	}
	if err != nil {
		return nil, err
	}
	return g.metered(ctx, proxy, programs, func(meter *contest.Meter) (figures.Sample, error) {
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		defer utilnet.CloseIdleConnectionsFor(c.Transport)
		return measure(meter, &route{config: config, client: c})
	})
}

// through is for the agent's caller, as Argo CD's server is by the certificate in the cluster's Secret.
func (g *ground) through(proxy *lab.Proxy) (*rest.Config, error) {
	pair, err := g.Lab.CA.IssueClient(pki.ClientOptions{Caller: spoke})
	if err != nil {
		return nil, err
	}
	return client.Apart(&rest.Config{
		Host: "https://" + proxy.Address,
		TLSClientConfig: rest.TLSClientConfig{
			CAData: g.Lab.CA.PEM().Certificate, CertData: pair.Certificate, KeyData: pair.Key,
		},
	}), nil
}

// get reads what is at a path to its end, which must have at least so many bytes.
func (r *route) get(ctx context.Context, path string, least int64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.config.Host+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || response.ProtoMajor != 2 {
		said, _ := io.ReadAll(io.LimitReader(response.Body, shownOfErrors)) // what there is of it
		return fmt.Errorf("GET %s: %s by %s, not 200 by HTTP/2: %s", path, response.Status, response.Proto, said)
	}
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return fmt.Errorf("GET %s: %w after %d bytes", path, err, n)
	}
	if n < least {
		return fmt.Errorf("GET %s: %d bytes, want %d or more", path, n, least)
	}
	return nil
}

package reach

import (
	"context"
	"fmt"
	"os"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/contest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/relay"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
)

// newRelays starts some relays one behind the other, of which the last one connects to an address, and returns that of the
// first, and what ends them. Each is a program of its own, as what it stands beside is.
func (g *ground) newRelays(ctx context.Context, count int, to string) (address string, programs []contest.Program, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, nil, err
	}
	end = func() {
		for _, p := range programs {
			p.Kill() // it has nothing to lose
		}
	}
	for address = to; len(programs) < count; {
		target := address
		p, ports, err := g.Lab.Host.Launch(ctx, host.Program{
			Name: g.Lab.Host.Unique("relay"), Path: self, Ports: 1,
			Args:  func(ports []int) []string { return []string{relay.Command, port.Address(ports[0]), target} },
			Ready: func(ports []int) func(context.Context) error { return process.Listens(port.Address(ports[0])) },
		})
		if err != nil {
			end()
			return "", nil, nil, err
		}
		address = port.Address(ports[0])
		programs = append(programs, contest.Program{Name: fmt.Sprintf("relay %d", len(programs)+1), Process: p})
	}
	return address, programs, end, nil
}

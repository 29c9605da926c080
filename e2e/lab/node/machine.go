package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Unsupported says why there can be no nodes on this machine, or returns nil.
func Unsupported() error {
	if os.Geteuid() != 0 {
		return errors.New("real nodes need root")
	}
	if !capable(unix.CAP_SYS_ADMIN) || !capable(unix.CAP_NET_ADMIN) {
		return errors.New("real nodes need the capabilities SYS_ADMIN and NET_ADMIN")
	}
	for _, program := range []string{toolset.Containerd, toolset.Ctr, toolset.Runc, toolset.IP, toolset.NFT, toolset.BusyBox} {
		if _, err := toolset.Find(program); err != nil {
			return err
		}
	}
	return nil
}

// capable says whether this process has a capability.
func capable(capability int) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0
}

// Machine is this machine as it has nodes of one lab: a bridge that they are at. Close removes what they are and had.
type Machine struct {
	host  *host.Host
	tools *toolset.Set
	slot  *slot
	nodes []*Node
}

// NewMachine takes a slot and makes the bridge. What labs have left that were killed is removed before.
func NewMachine(ctx context.Context, h *host.Host, tools *toolset.Set) (*Machine, error) {
	if err := Unsupported(); err != nil {
		return nil, err
	}
	s, err := takeSlot(ctx, h.Dir())
	if err != nil {
		return nil, err
	}
	m := &Machine{host: h, tools: tools, slot: s}
	if err := m.furnish(ctx); err != nil {
		return nil, errors.Join(err, m.Close(context.WithoutCancel(ctx)))
	}
	return m, nil
}

func (m *Machine) furnish(ctx context.Context) error {
	if err := changeSettings(); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"link", "add", m.slot.bridge(), "type", "bridge"},
		{"address", "add", m.slot.gateway() + "/24", "dev", m.slot.bridge()},
		{"link", "set", m.slot.bridge(), "up"},
	} {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// Nodes are what the API server of a cluster is told whose node is to have a name.
func (m *Machine) Nodes(name string) *cluster.Nodes {
	return &cluster.Nodes{Address: net.ParseIP(m.slot.gateway()), Names: []string{name}}
}

// Gateway is the address of this machine that Pods reach.
func (m *Machine) Gateway() string { return m.slot.gateway() }

// Close ends all nodes, with all Pods, and removes what they had.
func (m *Machine) Close(ctx context.Context) error {
	var failures []error
	for _, n := range m.nodes {
		for _, p := range []*process.Process{n.Kubelet, n.KubeProxy, n.Containerd} {
			if p != nil {
				p.Kill()
			}
		}
	}
	return errors.Join(append(failures, m.slot.release(ctx))...)
}

// network makes the network namespace of a node, and routes to its Pods and theirs to those of the others. There is no default route: what a
// Pod asks of the world fails at once. Addresses of Services lead nowhere but to where kube-proxy sends them.
func (m *Machine) network(ctx context.Context, n *Node) error {
	s, index := m.slot, n.index
	outside := fmt.Sprintf("%sn%d", s.bridge(), index)
	commands := [][]string{
		{"netns", "add", n.space},
		{"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", n.space},
		{"link", "set", outside, "master", s.bridge(), "up"},
		{"-n", n.space, "link", "set", "lo", "up"},
		{"-n", n.space, "address", "add", s.node(index) + "/24", "dev", "eth0"},
		{"-n", n.space, "link", "set", "eth0", "up"},
		{"-n", n.space, "link", "add", "services", "type", "bridge"},
		{"-n", n.space, "link", "set", "services", "up"},
		{"-n", n.space, "route", "add", services, "dev", "services"},
		{"route", "replace", s.pods(index), "via", s.node(index)},
	}
	for _, other := range m.nodes {
		commands = append(commands,
			[]string{"-n", n.space, "route", "add", s.pods(other.index), "via", s.node(other.index)},
			[]string{"-n", other.space, "route", "add", s.pods(index), "via", s.node(index)})
	}
	for _, args := range commands {
		if err := ip(ctx, args...); err != nil {
			return err
		}
	}
	for _, name := range []string{"net.ipv4.ip_forward=1", "net.ipv4.conf.all.route_localnet=1", "net.bridge.bridge-nf-call-iptables=1"} {
		out, err := exec.CommandContext(ctx, "nsenter", "--net=/run/netns/"+n.space, "sysctl", "-qw", name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("sysctl %s: %w: %s", name, err, out)
		}
	}
	return nil
}

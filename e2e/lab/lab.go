// Package lab is a hub and its spokes on one machine: real API servers, real Argo CD, and this project's principal and
// agents, each of which can be stopped, restarted and cut off. Start declares it; what it gives out belongs to it.
package lab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/gitserver"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// reportLines is how much of each program's log a Report holds.
const reportLines = 20

// Lab is a running lab. Its methods may be called by many goroutines.
type Lab struct {
	Hub   *Cluster
	Git   *gitserver.Server
	CA    *pki.CA    // signs the certificates of principals and agents
	Host  *host.Host // owns all processes, links and files
	Tools *toolset.Set

	// What Options.Agents asks for; nil without.
	Principal  *Principal
	Principals []*Principal // all that the options ask for, Principal first
	Kubeproxy  *Proxy       // nil without Options.ArgoCD, too
	Redisproxy *Proxy       // the same

	options    Options
	repository string
	clusterCA  *pki.CA
	spokes     map[string]*Cluster

	mu     sync.Mutex // guards agents
	agents map[string]*Agent

	building sync.Mutex // held while the binaries are built
	built    bool
}

// Cluster is a hub or a spoke.
type Cluster struct {
	*cluster.Cluster
	ArgoCD *argocd.Installation // nil when Argo CD does not run
}

// Start starts what the options declare and returns when all of it is ready. When it fails nothing is left behind; the
// error holds the end of the log of the program that is to blame.
func Start(ctx context.Context, options Options) (*Lab, error) {
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	l := &Lab{options: options, spokes: make(map[string]*Cluster), agents: make(map[string]*Agent)}
	if err := l.prepare(); err != nil {
		return nil, fmt.Errorf("lab: %w", err)
	}
	if err := l.start(ctx); err != nil {
		_ = l.Host.Close() // what is wrong has been found
		return nil, fmt.Errorf("lab: %w", err)
	}
	return l, nil
}

// Spoke is the spoke of that name. There being none is a mistake in the test that asks, which gets nil.
func (l *Lab) Spoke(name string) *Cluster { return l.spokes[name] }

// Agent is the first agent that was made with that name; nil when none was.
func (l *Lab) Agent(name string) *Agent {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.agents[name]
}

// Close stops everything and removes the lab's folder.
func (l *Lab) Close() error { return l.Host.Close() }

// Report is what a person wants to see when a test has failed: which programs ended by themselves, and the end of the
// logs of this project's own.
func (l *Lab) Report() string {
	var text strings.Builder
	for _, p := range l.Host.Processes() {
		switch {
		case p.Err() != nil:
			fmt.Fprintf(&text, "%v\n", p.Err())
		case strings.Contains(p.Name(), principalPart), strings.Contains(p.Name(), agentPart):
			fmt.Fprintf(&text, "--- end of %s\n%s", p.LogPath(), p.Tail(reportLines))
		}
	}
	return text.String()
}

// prepare makes what is needed before anything is started.
func (l *Lab) prepare() error {
	var err error
	if l.repository, err = toolset.Repository(); err != nil {
		return err
	}
	if l.Tools, err = toolset.Locate(l.repository, l.options.Tools...); err != nil {
		return err
	}
	if missing := l.Tools.Missing(); len(missing) > 0 {
		return fmt.Errorf("%s not built: run `make %s`", strings.Join(missing, ", "), l.Tools.Target())
	}
	if l.clusterCA, err = pki.NewCA(pki.CAOptions{CommonName: "clusters of the lab"}); err != nil {
		return err
	}
	l.Host, err = host.New(host.Options{Dir: l.options.Dir, Keep: l.options.Keep})
	return err
}

func (l *Lab) start(ctx context.Context) error {
	work, workCtx := errgroup.WithContext(ctx)
	work.Go(func() error { return l.startHub(workCtx) })
	spokes := make([]*Cluster, len(l.options.Spokes))
	for i, name := range l.options.Spokes {
		work.Go(func() error {
			var err error
			spokes[i], err = l.startSpoke(workCtx, name)
			return err
		})
	}
	work.Go(func() error {
		files, err := repositoryFiles()
		if err != nil {
			return err
		}
		l.Git, err = gitserver.Start(workCtx, l.Host, "127.0.0.1", files)
		return err
	})
	work.Go(func() error { return l.build(workCtx) })
	if err := work.Wait(); err != nil {
		return err
	}
	for i, name := range l.options.Spokes {
		l.spokes[name] = spokes[i]
	}
	if err := l.furnish(ctx); err != nil {
		return err
	}
	if l.options.Agents {
		return l.startAgents(ctx)
	}
	return nil
}

func (l *Lab) startHub(ctx context.Context) error {
	hub, err := l.startCluster(ctx, cluster.Options{Name: "hub", Users: []string{PrincipalUser}, Namespaces: l.options.Pods})
	if err != nil {
		return err
	}
	if err := applyManifest(ctx, hub, principalRights); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if l.options.ArgoCD {
		if err := l.installArgoCD(ctx, hub); err != nil {
			return err
		}
	}
	l.Hub = hub
	l.options.Progress("hub is ready")
	return nil
}

// installArgoCD starts what the hub has of Argo CD. With agents argocd-server waits for what it reaches them through.
func (l *Lab) installArgoCD(ctx context.Context, hub *Cluster) error {
	var err error
	hub.ArgoCD, err = argocd.Install(ctx, argocd.Options{
		Cluster: hub.Cluster, Host: l.Host, Tools: l.Tools, Controller: l.options.HubController,
	})
	if err != nil || l.options.Agents {
		return err
	}
	return hub.ArgoCD.StartServer(ctx, hub.ArgoCD.RedisAddress)
}

func (l *Lab) startSpoke(ctx context.Context, name string) (*Cluster, error) {
	spoke, err := l.startCluster(ctx, cluster.Options{
		Name: "spoke-" + name, Users: []string{AgentUser, WideAgentUser}, Pods: l.options.Pods,
	})
	if err != nil {
		return nil, err
	}
	if err := applyManifest(ctx, spoke, agentRights); err != nil {
		return nil, fmt.Errorf("spoke %s: %w", name, err)
	}
	if l.options.ArgoCD {
		spoke.ArgoCD, err = argocd.Install(ctx, argocd.Options{
			Cluster: spoke.Cluster, Host: l.Host, Tools: l.Tools, Controller: true,
		})
		if err != nil {
			return nil, err
		}
	}
	l.options.Progress("spoke " + name + " is ready")
	return spoke, nil
}

// startCluster starts a cluster, of which the options say what differs.
func (l *Lab) startCluster(ctx context.Context, options cluster.Options) (*Cluster, error) {
	options.Host, options.Tools, options.CA, options.Audit = l.Host, l.Tools, l.clusterCA, l.options.Audit
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	if err := argocd.Define(ctx, c, l.Tools); err != nil {
		return nil, err
	}
	return &Cluster{Cluster: c}, nil
}

// startProxies starts what argocd-server reaches the spokes through, and then argocd-server.
func (l *Lab) startProxies(ctx context.Context) error {
	var err error
	if l.Kubeproxy, err = l.NewKubeproxy(ctx, ProxyOptions{}); err != nil {
		return err
	}
	if l.Redisproxy, err = l.NewRedisproxy(ctx, ProxyOptions{}); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{l.Kubeproxy.Start, l.Redisproxy.Start} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	for _, name := range l.options.Spokes { // whose clusters have an address now
		if err := l.RegisterAgent(ctx, name); err != nil {
			return err
		}
	}
	if err := l.Hub.ArgoCD.StartServer(ctx, l.Redisproxy.Address); err != nil {
		return err
	}
	l.options.Progress("argocd-server is ready")
	return nil
}

// startAgents starts the principal and the agents that the options ask for, and waits until they have found each other.
func (l *Lab) startAgents(ctx context.Context) error {
	if err := l.startPrincipals(ctx); err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	if l.Hub.ArgoCD != nil {
		work.Go(func() error { return l.startProxies(ctx) })
	}
	for _, name := range slices.Sorted(slices.Values(l.options.Spokes)) {
		options := l.options.Agent
		options.Spoke, options.Name = name, name
		work.Go(func() error {
			a, err := l.NewAgent(ctx, options)
			if err != nil {
				return err
			}
			if err := a.Start(ctx); err != nil {
				return err
			}
			return a.WaitConnected(ctx)
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	l.options.Progress("principal and agents are connected")
	return nil
}

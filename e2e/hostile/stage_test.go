package hostile_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Spokes with honest agents, which a lying principal talks to.
const (
	managedSpoke    = "m"
	autonomousSpoke = "a"
)

// Agents that lie to the honest principal, and one that does not.
const (
	managedLiar    = "lena" // managed
	autonomousLiar = "lars" // autonomous
	bystander      = "vera" // managed, and honest; it never connects
)

// stage is who talks to whom.
type stage struct {
	lab *lab.Lab

	// The lying principal's sessions with the honest agents.
	toManaged, toAutonomous *session
	// The lying agents' sessions with the honest principal.
	fromManaged, fromAutonomous *session
}

// newStage has everybody connect.
func newStage(ctx context.Context, l *lab.Lab) (*stage, func(), error) {
	s := &stage{lab: l}
	var leave []func()
	leaveAll := func() {
		for _, f := range leave {
			f()
		}
	}
	liar, err := startLyingPrincipal(ctx, l.CA, map[string]string{"managed": managedSpoke, "autonomous": autonomousSpoke})
	if err != nil {
		return nil, nil, err
	}
	leave = append(leave, liar.server.Stop)
	if err := s.startHonestAgents(ctx, liar); err != nil {
		leaveAll()
		return nil, nil, err
	}
	if err := s.startHonestPrincipal(ctx); err != nil {
		leaveAll()
		return nil, nil, err
	}
	return s, leaveAll, nil
}

// startHonestAgents has a managed and an autonomous agent connect to the lying principal.
func (s *stage) startHonestAgents(ctx context.Context, liar *lyingPrincipal) error {
	for mode, name := range liar.agents {
		agent, err := s.lab.NewAgent(ctx, lab.AgentOptions{
			Spoke: name, Mode: mode, Principal: &lab.Principal{Address: liar.address},
		})
		if err != nil {
			return err
		}
		if err := agent.Start(ctx); err != nil {
			return err
		}
	}
	for mode, talk := range map[string]**session{"managed": &s.toManaged, "autonomous": &s.toAutonomous} {
		select {
		case *talk = <-liar.sessions[mode]:
		case <-ctx.Done():
			return fmt.Errorf("the %s agent does not connect: %w", mode, ctx.Err())
		}
	}
	return nil
}

// startHonestPrincipal has the lying agents connect to it.
func (s *stage) startHonestPrincipal(ctx context.Context) error {
	for _, name := range []string{managedLiar, autonomousLiar, bystander} {
		if err := s.lab.RegisterAgent(ctx, name); err != nil {
			return err
		}
	}
	if _, err := s.lab.Agentctl(ctx, "agent", "create", autonomousLiar, "--upsert", "--mode=autonomous"); err != nil {
		return err
	}
	var err error
	if s.lab.Principal, err = s.lab.NewPrincipal(ctx, lab.PrincipalOptions{}); err != nil {
		return err
	}
	if err := s.lab.Principal.Start(ctx); err != nil {
		return err
	}
	for _, talk := range []struct {
		name, mode string
		session    **session
	}{{managedLiar, "managed", &s.fromManaged}, {autonomousLiar, "autonomous", &s.fromAutonomous}} {
		conn, err := s.dial(pki.ClientOptions{CommonName: talk.name})
		if err != nil {
			return err
		}
		if *talk.session, err = connect(context.WithoutCancel(ctx), conn, agentHello(talk.mode)); err != nil {
			return err
		}
	}
	return nil
}

// dial connects to the honest principal.
func (s *stage) dial(options pki.ClientOptions) (*grpc.ClientConn, error) {
	return dial(s.lab.CA, s.lab.Principal.Address, options)
}

// Resources that lies are about.
func configMaps() schema.GroupVersionResource { return core("configmaps") }
func secrets() schema.GroupVersionResource    { return core("secrets") }
func projects() schema.GroupVersionResource   { return argoproj("appprojects") }
func apps() schema.GroupVersionResource       { return argoproj("applications") }

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

func argoproj(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: resource}
}

// in selects an object in Argo CD's namespace.
func in(resource schema.GroupVersionResource, name string) cluster.Selection {
	return cluster.Selection{Resource: resource, Namespace: lab.Namespace, Name: name}
}

// get reads an object, nil if there is none.
func get(t *testing.T, c *lab.Cluster, s cluster.Selection) *unstructured.Unstructured {
	t.Helper()
	object, err := c.Get(t.Context(), s)
	require.NoError(t, err)
	return object
}

// requireNone checks that there is no such object.
func requireNone(t *testing.T, c *lab.Cluster, s cluster.Selection) {
	t.Helper()
	require.Nil(t, get(t, c, s), "%s", s)
}

// create creates an object that is somebody else's than the liar's.
func create(t *testing.T, c *lab.Cluster, text string) {
	t.Helper()
	require.NoError(t, c.ApplyYAML(t.Context(), []byte(text), lab.Namespace))
}

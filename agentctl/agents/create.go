package agents

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Spec is the wanted state of an agent on the hub.
type Spec struct {
	Name string
	// Proxy is the resource proxy's host:port, as Argo CD reaches it.
	Proxy  string
	Labels map[string]string
	// Access is where the certificates come from by which Argo CD proves itself to the resource proxy.
	Access Access
	// Replace allows to replace an existing cluster Secret.
	Replace bool
}

// Create creates the cluster Secret of an agent, unless there is a good one.
func Create(ctx context.Context, hub *cluster.Client, w Spec) (cluster.Result, error) {
	if _, err := ParseName(hub, w.Name); err != nil {
		return cluster.Result{}, err
	}
	if err := w.unique(ctx, hub); err != nil {
		return cluster.Result{}, err
	}
	name := argocd.ClusterSecretName(w.Name)
	return hub.Put(ctx, cluster.Change{
		Name: name, Type: corev1.SecretTypeOpaque, Replace: w.Replace, Flag: "--upsert",
		Differs: w.differs,
		Refuse: func(existing *corev1.Secret) error {
			if existing.Labels[argocd.LabelAgent] == w.Name {
				return nil
			}
			return fmt.Errorf("it is that of another cluster, since its label %s is not %s: delete it if nobody needs it: %s",
				argocd.LabelAgent, w.Name, hub.Command("delete secret %s -n %s", name, hub.Namespace))
		},
		Write: w.write,
		Describe: func(s *corev1.Secret) (string, []string, error) {
			state, err := loadHub(ctx, hub)
			if err != nil {
				return "", nil, err
			}
			agent, err := state.describe(ctx, s, w.Name)
			return "agent " + w.Name + " at " + agent.Server, agent.Problems, err
		},
	})
}

// unique refuses an agent that has a cluster Secret of another name.
func (w Spec) unique(ctx context.Context, hub *cluster.Client) error {
	secrets, err := hub.List(ctx, argocd.LabelAgent+"="+w.Name)
	if err != nil {
		return err
	}
	for i := range secrets {
		if name := secrets[i].Name; name != argocd.ClusterSecretName(w.Name) {
			return fmt.Errorf("agent %s: %s is about it already: an agent has one: delete that one first: %s", w.Name, hub.Secret(name),
				hub.Command("delete secret %s -n %s", name, hub.Namespace))
		}
	}
	return nil
}

// differs says why an existing Secret is not as wanted.
func (w Spec) differs(existing *corev1.Secret) []string {
	cluster, err := argocd.ReadCluster(existing)
	differences := secretProblems(existing, cluster, w.Name)
	if want := w.Access.Server(w.Proxy, w.Name); len(differences) == 0 && cluster.Server != want {
		differences = append(differences, fmt.Sprintf("its server is %s, not %s", cluster.Server, want))
	}
	for _, key := range slices.Sorted(maps.Keys(w.Labels)) {
		if value, ok := existing.Labels[key]; !ok || value != w.Labels[key] {
			differences = append(differences, fmt.Sprintf("it has no label %s=%s", key, w.Labels[key]))
		}
	}
	if err != nil {
		return append(differences, err.Error())
	}
	if argocd.IsSelfRegistered(existing) {
		return append(differences, "it was created by a principal, which manages it")
	}
	return append(differences, w.Access.Differs(cluster.Access.TLS, w.Name)...)
}

// write makes a Secret as wanted.
func (w Spec) write(s *corev1.Secret) error {
	access, err := w.Access.Get(w.Name)
	if err != nil {
		return err
	}
	argocd.EndRegistration(s)
	if err := (argocd.Cluster{
		Agent: w.Name, Name: w.Name, Server: w.Access.Server(w.Proxy, w.Name), Access: argocd.ClusterAccess{TLS: access},
	}).Write(s); err != nil {
		return err
	}
	maps.Copy(s.Labels, w.Labels)
	return nil
}

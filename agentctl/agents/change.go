package agents

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Find returns the cluster Secret of an agent, which must be there.
func Find(ctx context.Context, hub *cluster.Client, name string) (*corev1.Secret, error) {
	secrets, err := existing(ctx, hub, name)
	if err != nil {
		return nil, err
	}
	return &secrets[0], nil
}

// Changes are what is to become other about an agent on the hub. What is empty stays.
type Changes struct {
	// Proxy is the resource proxy's host:port, as Argo CD reaches it.
	Proxy string
	// Access is where new certificates come from.
	Access Access
}

// Reconfigure changes the cluster Secret of an agent, and leaves all else of it as it is.
func Reconfigure(ctx context.Context, hub *cluster.Client, name string, c Changes) (cluster.Result, error) {
	found, err := Find(ctx, hub, name)
	if err != nil {
		return cluster.Result{}, err
	}
	differs, err := c.differs(found, name)
	if err != nil {
		return cluster.Result{}, fmt.Errorf("%s: %w", hub.Secret(found.Name), err)
	}
	return hub.Put(ctx, cluster.Change{
		Name: found.Name, Type: corev1.SecretTypeOpaque, Replace: differs,
		Differs: func(*corev1.Secret) []string { return nil },
		Refuse: func(existing *corev1.Secret) error {
			if argocd.IsSelfRegistered(existing) {
				return errors.New("it was created by a principal, which manages it")
			}
			return nil
		},
		Write: func(s *corev1.Secret) error { return c.write(s, name) },
		Describe: func(s *corev1.Secret) (string, []string, error) {
			return "agent " + name + " at " + argocd.ServerOf(s), nil, nil
		},
	})
}

// differs reports whether there is anything to change. New certificates always are.
func (c Changes) differs(s *corev1.Secret, name string) (bool, error) {
	if c.Access != nil {
		return true, nil
	}
	changed := s.DeepCopy()
	err := c.write(changed, name)
	return argocd.ServerOf(changed) != argocd.ServerOf(s), err
}

// write changes an existing Secret.
func (c Changes) write(s *corev1.Secret, name string) error {
	if s.Labels[argocd.LabelAgent] != name {
		return fmt.Errorf("it is not that of agent %s: create that with: argocd-agentctl agent create %s", name, name)
	}
	known, err := argocd.ReadCluster(s)
	if err != nil {
		return err
	}
	known.Server = c.server(known, name)
	if c.Access != nil {
		if known.Access.TLS, err = c.Access.Get(name); err != nil {
			return err
		}
	}
	return known.Write(s)
}

// server returns the address that the Secret is to have.
func (c Changes) server(known argocd.Cluster, name string) string {
	proxy, bySidecar := c.Proxy, known.BySidecar()
	if address, err := url.Parse(known.Server); proxy == "" && err == nil {
		proxy = address.Host
	}
	_, toSidecar := c.Access.(Sidecar)
	switch {
	case c.Access != nil && bySidecar != toSidecar:
		return c.Access.Server(proxy, name)
	case c.Proxy == "":
		return known.Server
	case bySidecar:
		return argocd.ClusterServerBySidecar(proxy, name)
	default:
		return argocd.ClusterServer(proxy, name)
	}
}

// Delete deletes the cluster Secret of an agent: neither Argo CD nor the principal know it then.
func Delete(ctx context.Context, hub *cluster.Client, secret *corev1.Secret) (cluster.Result, error) {
	return hub.Delete(ctx, secret, "agent "+secret.Labels[argocd.LabelAgent])
}

package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Config returns what other clients of the same cluster are made of.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Applications returns the names of the Applications in the client's namespace.
func (c *Client) Applications(ctx context.Context) ([]string, error) {
	found, err := c.applications(ctx)
	names := make([]string, 0, len(found))
	for i := range found {
		names = append(names, found[i].Name)
	}
	return names, err
}

// ApplicationTo returns the name of an Application in the client's namespace that has a cluster as its destination; empty if there is none.
func (c *Client) ApplicationTo(ctx context.Context, destination string) (string, error) {
	found, err := c.applications(ctx)
	for i := range found {
		var spec struct {
			Destination struct{ Name string } `json:"destination"`
		}
		if json.Unmarshal(found[i].Spec, &spec) == nil && spec.Destination.Name == destination {
			return found[i].Name, nil
		}
	}
	return "", err
}

func (c *Client) applications(ctx context.Context) ([]argocd.Application, error) {
	client, err := argocd.NewClient(c.config, argocd.Applications(), argocd.Scope{Namespace: c.Namespace})
	if err != nil {
		return nil, err
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("%s: list Applications in namespace %s: %w", c, c.Namespace, c.explain(err))
	}
	found, ok := list.(*argocd.ApplicationList)
	if !ok {
		return nil, fmt.Errorf("%s: list Applications: %T", c, list)
	}
	return found.Items, nil
}

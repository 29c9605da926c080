package cluster

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Config returns what other clients of the same cluster are made of.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Applications returns the names of the Applications in the client's namespace.
func (c *Client) Applications(ctx context.Context) ([]string, error) {
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
	names := make([]string, 0, len(found.Items))
	for i := range found.Items {
		names = append(names, found.Items[i].Name)
	}
	return names, nil
}

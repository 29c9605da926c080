// Package client makes clients of the lab's API servers that take as little part in what is measured as they can.
package client

import (
	"fmt"
	"net"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
)

// For is for a user of a cluster who reaches its API server at an address, over a connection of its own and with no limits
// on its rate.
func For(c *lab.Cluster, user, address string) (*rest.Config, error) {
	path, err := c.KubeconfigFor(user, address, lab.Namespace)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return Apart(config), nil
}

// Apart changes a configuration to one whose clients share no connection with others, and have no limits on their rate.
func Apart(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.Dial = (&net.Dialer{}).DialContext // clients with a dialer of their own share no connections
	return config
}

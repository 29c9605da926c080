package crowd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/cmd/bench/load"
)

// application is the name of one of an agent's, of which no other agent has one.
func (c *crowd) application(agent, which int) string {
	return fmt.Sprintf("%s-%d", c.names()[agent], which)
}

// furnish makes the namespaces by which the hub knows the agents, and the Applications that are not on the hub yet.
func (c *crowd) furnish(ctx context.Context) error {
	namespaces := c.Lab.Hub.Kubernetes.CoreV1().Namespaces()
	owners := c.names()[:c.owners]
	return load.Each(ctx, c.names(), func(ctx context.Context, agent string) error {
		_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: agent}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if !slices.Contains(owners, agent) {
			return nil
		}
		site := load.Site{Cluster: c.Lab.Hub.Cluster, Namespace: agent}
		for which := range c.Applications {
			if err := site.Create(ctx, agent, fmt.Sprintf("%s-%d", agent, which)); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	})
}

// requests is how many requests about Applications and Events the hub's API server has answered since it was started, but for
// watches.
func (c *crowd) requests(ctx context.Context) (float64, error) {
	text, err := c.Lab.Hub.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("metrics of the API server: %w", err)
	}
	sum := 0.0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		labels, value, found := strings.Cut(lines.Text(), "} ")
		if !found || !strings.HasPrefix(labels, "apiserver_request_total{") || strings.Contains(labels, `verb="WATCH"`) ||
			!strings.Contains(labels, `resource="applications"`) && !strings.Contains(labels, `resource="events"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metrics of the API server: %w", err)
		}
		sum += n
	}
	return sum, nil
}

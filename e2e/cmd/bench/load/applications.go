// Package load is what the benchmark asks of those it measures: Applications, changes to their statuses, and a view of a
// cluster that tells when each of them was seen. It knows nothing of who carries them from one cluster to the other.
package load

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// workers is how many requests are under way at a time where many are made.
const workers = 16

// Names are n names of Applications that begin alike.
func Names(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return names
}

// Site is where Applications are: a namespace of a cluster.
type Site struct {
	Cluster   *cluster.Cluster
	Namespace string
}

func (s Site) client() dynamic.ResourceInterface { return s.Cluster.Of(argocd.All(s.Namespace)) }

// Create makes Applications, many at a time, that are to be deployed to the named cluster.
func (s Site) Create(ctx context.Context, destination string, names ...string) error {
	return Each(ctx, names, func(ctx context.Context, name string) error {
		object := argocd.New(argocd.Application{
			Namespace: s.Namespace, Name: name, Destination: destination, Into: name,
			RepoURL: "https://git.example.org/team/deployments.git", Path: "overlays/production",
		})
		_, err := s.client().Create(ctx, object, metav1.CreateOptions{})
		return err
	})
}

// Delete deletes Applications, many at a time.
func (s Site) Delete(ctx context.Context, names ...string) error {
	return Each(ctx, names, func(ctx context.Context, name string) error {
		return s.client().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// Clear deletes all Applications and returns when none is left.
func (s Site) Clear(ctx context.Context) error {
	if err := s.client().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("clear %s on %s: %w", s.Namespace, s.Cluster.Name, err)
	}
	_, err := s.Cluster.WaitAll(ctx, argocd.All(s.Namespace), func(o cluster.Objects) bool { return len(o) == 0 })
	return err
}

// WriteStatuses gives each Application one status after the other, as an application controller would, many Applications
// at a time, and returns when each was asked to have its last one.
func (s Site) WriteStatuses(ctx context.Context, statuses []Status, names ...string) (map[string]time.Time, error) {
	lanes := min(workers, len(names))
	asked := make([]map[string]time.Time, lanes)
	work, ctx := errgroup.WithContext(ctx)
	for lane := range lanes {
		asked[lane] = make(map[string]time.Time)
		work.Go(func() error {
			for _, status := range statuses {
				for i := lane; i < len(names); i += lanes {
					asked[lane][names[i]] = time.Now()
					if err := s.writeStatus(ctx, names[i], status); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, fmt.Errorf("write statuses on %s: %w", s.Cluster.Name, err)
	}
	all := make(map[string]time.Time, len(names))
	for _, lane := range asked {
		maps.Copy(all, lane)
	}
	return all, nil
}

func (s Site) writeStatus(ctx context.Context, name string, status Status) error {
	// Argo CD writes statuses so too: its definition of an Application has no status subresource.
	_, err := s.client().Patch(ctx, name, types.MergePatchType, status.patch, metav1.PatchOptions{})
	return err
}

// Each does something for every name, several at a time.
func Each(ctx context.Context, names []string, do func(context.Context, string) error) error {
	var next atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	for range min(workers, len(names)) {
		work.Go(func() error {
			for i := next.Add(1) - 1; int(i) < len(names); i = next.Add(1) - 1 {
				if err := do(ctx, names[i]); err != nil {
					return fmt.Errorf("%s: %w", names[i], err)
				}
			}
			return nil
		})
	}
	return work.Wait()
}

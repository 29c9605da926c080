package load

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
)

// The label by which Argo CD knows what a Secret is for, and its value for the credentials of a repository.
const (
	secretType     = "argocd.argoproj.io/secret-type"
	repositoryType = "repository"
)

// RepositorySelector selects the credentials of repositories among Secrets, as Argo CD does.
const RepositorySelector = secretType + "=" + repositoryType

// Furniture is what Applications need besides themselves, by its names.
type Furniture struct {
	Projects     []string
	Repositories []string // their credentials, for one project each
}

// Projects selects the projects of a namespace.
func Projects(namespace string) cluster.Selection {
	return cluster.Selection{
		Resource:  schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "appprojects"},
		Namespace: namespace,
	}
}

// Credentials selects the Secrets of a namespace.
func Credentials(namespace string) cluster.Selection {
	return cluster.Selection{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: namespace}
}

// Furnish creates furniture for an agent: projects whose Applications are in the namespace of its name and go to its cluster.
func (s Site) Furnish(ctx context.Context, f Furniture, agent string) error {
	projects := Each(ctx, f.Projects, func(ctx context.Context, name string) error {
		return s.create(ctx, Projects(s.Namespace), map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
			"metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"sourceRepos": []any{"https://git.example.org/" + name + "/*"}, "sourceNamespaces": []any{agent},
				"destinations": []any{map[string]any{"name": agent, "server": "*", "namespace": "*"}},
			},
		})
	})
	projectOf := make(map[string]string, len(f.Repositories))
	for i, name := range f.Repositories {
		projectOf[name] = f.Projects[i%len(f.Projects)]
	}
	credentials := Each(ctx, f.Repositories, func(ctx context.Context, name string) error {
		return s.create(ctx, Credentials(s.Namespace), map[string]any{
			"apiVersion": "v1", "kind": "Secret",
			"metadata": map[string]any{
				"name": name, "labels": map[string]any{secretType: repositoryType},
			},
			"stringData": map[string]any{
				"type": "git", "url": "https://git.example.org/" + projectOf[name] + "/" + name,
				"project": projectOf[name], "username": "robot", "password": "of " + name,
			},
		})
	})
	return errors.Join(projects, credentials)
}

func (s Site) create(ctx context.Context, of cluster.Selection, content map[string]any) error {
	_, err := s.Cluster.Of(of).Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	return err
}

// WaitFurnished returns when all of it is there.
func (s Site) WaitFurnished(ctx context.Context, f Furniture) error {
	return s.waitFurniture(ctx, f, true)
}

// Strip deletes furniture, as far as it is there, and returns when it is gone.
func (s Site) Strip(ctx context.Context, f Furniture) error {
	for _, these := range s.furniture(f) {
		err := Each(ctx, these.names, func(ctx context.Context, name string) error {
			err := s.Cluster.Of(these.of).Delete(ctx, name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("strip %s on %s: %w", s.Namespace, s.Cluster.Name, err)
		}
	}
	return s.waitFurniture(ctx, f, false)
}

// piece is furniture of one kind.
type piece struct {
	of    cluster.Selection
	names []string
}

func (s Site) furniture(f Furniture) []piece {
	return []piece{{Projects(s.Namespace), f.Projects}, {Credentials(s.Namespace), f.Repositories}}
}

func (s Site) waitFurniture(ctx context.Context, f Furniture, present bool) error {
	for _, these := range s.furniture(f) {
		_, err := s.Cluster.WaitAll(ctx, these.of, func(objects cluster.Objects) bool {
			for _, name := range these.names {
				if _, there := objects[s.Namespace+"/"+name]; there != present {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Package certmanager runs cert-manager's own controllers for issuers and certificate requests. They work in one namespace, so that tests
// that share a cluster have one each. Its webhook is not there: nobody checks who approves a request.
package certmanager

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// Options say what to run. Host, Tools, Cluster and Namespace are required.
type Options struct {
	Host      *host.Host
	Tools     *toolset.Set
	Cluster   *cluster.Cluster
	Namespace string
	// Manual leaves it to others to approve requests, or to deny them.
	Manual bool
}

// The resources of cert-manager.
const group, version = "cert-manager.io", "v1"

// Requests selects a CertificateRequest, or all if the name is empty.
func Requests(namespace, name string) cluster.Selection {
	return selection("certificaterequests", namespace, name)
}

// Issuers selects an Issuer.
func Issuers(namespace, name string) cluster.Selection { return selection("issuers", namespace, name) }

func selection(resource, namespace, name string) cluster.Selection {
	return cluster.Selection{
		Resource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, Namespace: namespace, Name: name,
	}
}

// Start has a cluster know cert-manager's kinds, and runs its controllers. They are ready when the first Issuer is.
func Start(ctx context.Context, o Options) (*process.Process, error) {
	for _, file := range []string{toolset.RequestCRD, toolset.IssuerCRD} {
		if err := define(ctx, o, file); err != nil {
			return nil, fmt.Errorf("cert-manager: %w", err)
		}
	}
	p, _, err := o.Host.Define(host.Program{
		Name: o.Host.Unique("cert-manager"), Path: o.Tools.Program(toolset.CertManager),
		Args: func([]int) []string {
			return []string{"--kubeconfig=" + o.Cluster.Kubeconfig, "--namespace=" + o.Namespace, "--approve=" + strconv.FormatBool(!o.Manual)}
		},
	})
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// define creates the definitions in a file, and waits until they are served.
func define(ctx context.Context, o Options, file string) error {
	text, err := os.ReadFile(o.Tools.File(file))
	if err != nil {
		return err
	}
	definitions, err := cluster.Parse(text)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if err := o.Cluster.Apply(ctx, definition); err != nil {
			return err
		}
		if _, err := o.Cluster.Wait(ctx, definitionOf(definition.GetName()), established); err != nil {
			return err
		}
	}
	return nil
}

// definitionOf selects a CustomResourceDefinition.
func definitionOf(name string) cluster.Selection {
	return cluster.Selection{
		Resource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Name: name,
	}
}

func established(definition *unstructured.Unstructured) bool {
	return definition != nil && cluster.Condition(definition, "Established") == "True"
}

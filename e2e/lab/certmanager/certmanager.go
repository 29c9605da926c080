// Package certmanager runs cert-manager's own controllers for issuers and certificate requests. They work in one namespace, so that tests
// that share a cluster have one each. Its webhook is not there: nobody checks who approves a request.
package certmanager

import (
	"context"
	"fmt"
	"strconv"

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
	if err := o.Cluster.Define(ctx, o.Tools.File(toolset.RequestCRD), o.Tools.File(toolset.IssuerCRD)); err != nil {
		return nil, fmt.Errorf("cert-manager: %w", err)
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

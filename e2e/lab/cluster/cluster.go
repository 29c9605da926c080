// Package cluster runs one Kubernetes cluster of the lab: a real etcd and API server, and on request the controllers,
// the scheduler and a fake node that make Pods run. What is installed in it is up to others.
package cluster

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// Admin is the user that may do everything, and Person one that no program is, who may do nothing until something in the cluster says so.
const (
	Admin  = "admin"
	Person = "person"
)

// Options say what a cluster is made of. All but Users and what follows are required.
type Options struct {
	Name  string // names its processes and files, such as "hub"
	Host  *host.Host
	Tools *toolset.Set
	CA    *pki.CA  // signs the API server's certificate
	Users []string // besides Admin and Person; they may do nothing until something in the cluster says so
	Pods  bool     // whether Deployments and Pods come to life, and Namespaces
	// Namespaces says that those that are deleted end, with all that is in them.
	Namespaces bool
	Audit      bool // whether the API server writes down what Users ask
	// Nodes is for clusters that real nodes join, instead of Pods: see package node. Nil for the others.
	Nodes *Nodes
}

// Nodes is what the API server has to know of real nodes.
type Nodes struct {
	// Address is where it listens instead of at loopback, which nodes and Pods have one of their own of.
	Address net.IP
	// Names are those of the nodes. Each has the user NodeUser.
	Names []string
}

// NodeUser is who a node is to the API server.
func NodeUser(node string) string { return "system:node:" + node }

// Cluster is a running cluster. Its methods may be called by many goroutines.
type Cluster struct {
	Name       string
	Address    string // the API server's host:port
	Kubeconfig string // path of the admin's
	Dynamic    dynamic.Interface
	Kubernetes kubernetes.Interface

	Etcd *process.Process
	// APIServer is better killed than stopped: asked to stop, it waits for its clients' connections first.
	APIServer         *process.Process
	ControllerManager *process.Process // nil without Pods and Namespaces
	Scheduler         *process.Process // nil without Pods
	Node              *process.Process // nil without Pods

	// PodLogFile is what every container has logged, in the form in which a kubelet keeps it. Empty without Pods.
	PodLogFile string
	// PodPortFile holds the port on 127.0.0.1 that leads on from ForwardedPort of every container. It is not there at first. Empty without Pods.
	PodPortFile string

	host   *host.Host
	tools  *toolset.Set
	nodes  *Nodes
	ca     []byte
	files  pkiFiles
	config *rest.Config
	mapper meta.ResettableRESTMapper
}

// Start starts a cluster and returns when its API server is ready, and with Pods, when its node is.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c := &Cluster{
		Name: options.Name, host: options.Host, tools: options.Tools,
		ca: options.CA.PEM().Certificate, nodes: options.Nodes,
	}
	var err error
	if c.files, err = writeFiles(options); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if err := c.startControlPlane(ctx); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	switch {
	case options.Nodes != nil:
		err = c.serveNodes(ctx)
	case options.Pods:
		err = c.startPods(ctx)
	case options.Namespaces:
		err = c.startControllers(ctx, namespaceController)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return c, nil
}

// CA is the certificate of the CA that the API server's comes from, as PEM.
func (c *Cluster) CA() []byte { return c.ca }

// RESTConfig returns the admin's configuration, without limits on its rate, for the caller to change and own.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// KubeconfigFor writes a kubeconfig for one of the cluster's users that reaches the API server at an address, its own or
// a link's, with the namespace as default, and returns its path.
func (c *Cluster) KubeconfigFor(user, address, namespace string) (string, error) {
	data, err := kubeconfig(c.Name, user, address, namespace, c.ca)
	if err != nil {
		return "", fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	name := c.host.Unique(fmt.Sprintf("%s-%s.kubeconfig", c.Name, user))
	return c.host.Write(filepath.Join("kubeconfigs", name), data)
}

// connect makes the admin's clients.
func (c *Cluster) connect() error {
	var err error
	if c.Kubeconfig, err = c.KubeconfigFor(Admin, c.Address, "argocd"); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	c.config.QPS = -1 // priority and fairness at the API server is limit enough
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	if c.Dynamic, err = dynamic.NewForConfigAndClient(c.config, client); err != nil {
		return fmt.Errorf("dynamic client: %w", err)
	}
	typed, err := kubernetes.NewForConfigAndClient(c.config, client)
	if err != nil {
		return fmt.Errorf("typed client: %w", err)
	}
	c.Kubernetes = typed
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(typed.Discovery()))
	return nil
}

// impatient is a client for probes: it opens a connection for each, so that none lingers from before a restart.
func impatient(transport *http.Transport) *http.Client {
	transport.DisableKeepAlives = true
	return &http.Client{Transport: transport, Timeout: time.Second}
}

package argocd

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Labels and annotations of the Secrets by which Argo CD on the hub knows clusters.
const (
	// LabelAgent, on a cluster Secret, names the agent whose cluster it is.
	LabelAgent = ownPrefix + "agent-name"
	// LabelMode, on a cluster Secret, is the one mode that its agent may have. Without it that is managed.
	LabelMode = ownPrefix + "agent-mode"
	// LabelSelfRegistered marks cluster Secrets that a principal made, and looks after.
	LabelSelfRegistered = ownPrefix + "self-registered-cluster"
	// AnnotationSkipReconcile, if "true", keeps the hub's own application controller away from a cluster.
	AnnotationSkipReconcile = "argocd.argoproj.io/skip-reconcile"
	// AnnotationGuardFloor and AnnotationGuardShare, on a cluster Secret, are the limits of the deletion guard for its agent: a number of
	// objects, and a percentage. Without them the principal's settings hold.
	AnnotationGuardFloor = ownPrefix + "deletion-guard-floor"
	AnnotationGuardShare = ownPrefix + "deletion-guard-share"
	// annotationManagedBy says who made a cluster Secret: managedByAgent.
	annotationManagedBy = "managed-by"
	managedByAgent      = "argocd-agent"
)

// ClusterSelector selects the cluster Secrets of agents.
const ClusterSelector = LabelAgent + "," + LabelSecretType + "=" + SecretTypeCluster

// OtherClusterSelector selects the Secrets of clusters that are no agents'.
const OtherClusterSelector = "!" + LabelAgent + "," + LabelSecretType + "=" + SecretTypeCluster

// Keys of a cluster Secret.
const (
	clusterNameKey   = "name"
	clusterServerKey = "server"
	clusterConfigKey = "config"
)

// DefaultResourceProxy is the resource proxy's address within the hub's cluster.
const DefaultResourceProxy = "argocd-agent-resource-proxy:9090"

// agentParameter makes the addresses of agents' clusters different from each other, by which Argo CD tells clusters apart.
// No request carries it.
const agentParameter = "agentName"

// Cluster is an agent's cluster as Argo CD on the hub knows it.
type Cluster struct {
	// Agent is whose cluster it is.
	Agent string
	// Name is what applications call it: the agent's name.
	Name string
	// Server is the address that Argo CD asks, which is the resource proxy's.
	Server string
	// Access is how Argo CD proves there who it is.
	Access ClusterAccess
}

// ClusterAccess is the part of Argo CD's configuration of a cluster that agents' clusters need.
type ClusterAccess struct {
	BearerToken string     `json:"bearerToken,omitempty"`
	TLS         ClusterTLS `json:"tlsClientConfig"`
}

// ClusterTLS is PEM text.
type ClusterTLS struct {
	Insecure    bool   `json:"insecure"`
	Certificate []byte `json:"certData,omitempty"`
	Key         []byte `json:"keyData,omitempty"`
	CAData      []byte `json:"caData,omitempty"`
}

// ClusterSecretName returns the name of the Secret that an agent's cluster is kept in.
func ClusterSecretName(agent string) string { return "cluster-" + agent }

// ClusterServer returns the address of an agent's cluster behind the resource proxy, a host:port.
func ClusterServer(proxy, agent string) string {
	return fmt.Sprintf("https://%s?%s=%s", proxy, agentParameter, url.QueryEscape(agent))
}

// ClusterServerBySidecar returns the address of an agent's cluster behind the resource proxy, a host:port, for an Argo CD whose sidecar
// proves who it is: without TLS, and with the agent in the path, since no certificate names it.
func ClusterServerBySidecar(proxy, agent string) string {
	return fmt.Sprintf("http://%s/agents/%s?%s=%s", proxy, url.PathEscape(agent), agentParameter, url.QueryEscape(agent))
}

// ClusterServerByPath returns the address of an agent's cluster behind the resource proxy, a host:port, for a client certificate that
// names no agent: with the agent in the path.
func ClusterServerByPath(proxy, agent string) string {
	return fmt.Sprintf("https://%s/agents/%s?%s=%s", proxy, url.PathEscape(agent), agentParameter, url.QueryEscape(agent))
}

// BySidecar reports whether Argo CD reaches the cluster without TLS of its own.
func (c Cluster) BySidecar() bool { return strings.HasPrefix(c.Server, "http://") }

// ByPath reports whether the address of the cluster names the agent, so that the client certificate need not.
func (c Cluster) ByPath() bool {
	address, err := url.Parse(c.Server)
	return err == nil && strings.HasPrefix(address.Path, "/agents/")
}

// ServerOf returns the address of the cluster that a cluster Secret is about, as Argo CD reads it (argo-cd, db.SecretToCluster).
func ServerOf(secret *corev1.Secret) string {
	return strings.TrimRight(string(secret.Data[clusterServerKey]), "/")
}

// ClusterNameOf returns what Argo CD calls the cluster that a cluster Secret is about.
func ClusterNameOf(secret *corev1.Secret) string { return string(secret.Data[clusterNameKey]) }

// Write puts the cluster into a Secret, which may be a new one. Other labels, annotations and keys that it has stay.
func (c Cluster) Write(secret *corev1.Secret) error {
	config, err := json.Marshal(c.Access) //nolint:gosec // into a Secret, which is where Argo CD wants them
	if err != nil {
		return fmt.Errorf("cluster of agent %s: encode: %w", c.Agent, err)
	}
	merge(&secret.Labels, map[string]string{LabelSecretType: SecretTypeCluster, LabelAgent: c.Agent})
	merge(&secret.Annotations, map[string]string{AnnotationSkipReconcile: "true", annotationManagedBy: managedByAgent})
	merge(&secret.Data, map[string][]byte{
		clusterNameKey: []byte(c.Name), clusterServerKey: []byte(c.Server), clusterConfigKey: config,
	})
	return nil
}

// merge adds entries to a map that may not be there yet.
func merge[V any](into *map[string]V, entries map[string]V) {
	if *into == nil {
		*into = make(map[string]V)
	}
	maps.Copy(*into, entries)
}

// ReadCluster returns the cluster that a Secret is about. It returns as much as can be read along with the error.
func ReadCluster(secret *corev1.Secret) (Cluster, error) {
	c := Cluster{Agent: secret.Labels[LabelAgent], Name: string(secret.Data[clusterNameKey]), Server: ServerOf(secret)}
	config := secret.Data[clusterConfigKey]
	if len(config) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(config, &c.Access); err != nil {
		return c, fmt.Errorf("its key %s is not what Argo CD expects: %w", clusterConfigKey, plain(err))
	}
	return c, nil
}

// plain returns what is wrong with JSON without any of its text, which may be a key.
func plain(err error) error {
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
		return fmt.Errorf("%s is a JSON %s", kind.Field, kind.Value)
	}
	return errors.New("no JSON object")
}

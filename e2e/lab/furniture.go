package lab

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/pki"
)

// Names of the Secrets that principals and agents look for.
const (
	caSecret        = "argocd-agent-ca"
	principalSecret = "argocd-agent-principal-tls"
	agentSecret     = "argocd-agent-client-tls"
)

// proxyAddress is where argocd-server would reach the spokes' APIs through if there were a kubeproxy.
const proxyAddress = "argocd-agent-resource-proxy:9090"

//go:embed manifests
var manifests embed.FS

// furnishHub puts on the hub what an administrator would: rights, certificates, and per agent a namespace and a cluster
// Secret.
func (l *Lab) furnishHub(ctx context.Context, hub *Cluster) error {
	if err := applyManifest(ctx, hub, principalRights); err != nil {
		return err
	}
	server, err := l.CA.IssueServer(pki.ServerOptions{
		CommonName: "argocd-agent-principal", Names: []string{"localhost"}, Addresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return err
	}
	objects := []*unstructured.Unstructured{
		tlsSecret(caSecret, l.CA.PEM(), nil),
		tlsSecret(principalSecret, server, nil),
	}
	for _, agent := range l.options.Spokes {
		about, err := l.agentOnHub(agent)
		if err != nil {
			return err
		}
		objects = append(objects, about...)
	}
	return hub.Apply(ctx, objects...)
}

// RegisterAgent lets the hub know of an agent that is not called as a spoke of the lab: its namespace and cluster Secret.
func (l *Lab) RegisterAgent(ctx context.Context, name string) error {
	objects, err := l.agentOnHub(name)
	if err != nil {
		return err
	}
	return l.Hub.Apply(ctx, objects...)
}

// agentOnHub returns what the hub knows of an agent: its namespace, and how argocd-server reaches its cluster.
func (l *Lab) agentOnHub(name string) ([]*unstructured.Unstructured, error) {
	client, err := l.CA.IssueClient(pki.ClientOptions{CommonName: name})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{"tlsClientConfig": map[string]any{
		"certData": client.Certificate, "keyData": client.Key, "caData": l.CA.PEM().Certificate,
	}})
	if err != nil {
		return nil, err
	}
	address := proxyAddress
	if l.Kubeproxy != nil {
		address = l.Kubeproxy.Address
	}
	return []*unstructured.Unstructured{
		namespaceObject(name),
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata": map[string]any{
				"name": "cluster-" + name, "namespace": Namespace,
				"labels": map[string]any{
					"argocd.argoproj.io/secret-type":           "cluster",
					"argocd-agent.argoproj-labs.io/agent-name": name,
				},
				"annotations": map[string]any{
					"argocd.argoproj.io/skip-reconcile": "true", "managed-by": "argocd-agent",
				},
			},
			"stringData": map[string]any{
				"name":   name,
				"server": fmt.Sprintf("https://%s?agentName=%s", address, name),
				"config": string(config),
			},
		}},
	}, nil
}

// furnishSpoke puts on a spoke what an administrator would: rights and certificates.
func (l *Lab) furnishSpoke(ctx context.Context, spoke *Cluster, name string) error {
	if err := applyManifest(ctx, spoke, agentRights); err != nil {
		return err
	}
	client, err := l.CA.IssueClient(pki.ClientOptions{CommonName: name})
	if err != nil {
		return err
	}
	ca := l.CA.PEM().Certificate
	return spoke.Apply(ctx,
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
			"metadata": map[string]any{"name": caSecret, "namespace": Namespace},
			"data":     map[string]any{"tls.crt": encode(ca), "ca.crt": encode(ca)},
		}},
		tlsSecret(agentSecret, client, ca),
	)
}

func namespaceObject(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
}

func tlsSecret(name string, pair pki.Pair, ca []byte) *unstructured.Unstructured {
	data := map[string]any{"tls.crt": encode(pair.Certificate), "tls.key": encode(pair.Key)}
	if ca != nil {
		data["ca.crt"] = encode(ca)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
		"metadata": map[string]any{"name": name, "namespace": Namespace},
		"data":     data,
	}}
}

func encode(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func applyManifest(ctx context.Context, c *Cluster, name string) error {
	objects, err := parseManifest(name)
	if err != nil {
		return err
	}
	return c.Apply(ctx, objects...)
}

func parseManifest(name string) ([]*unstructured.Unstructured, error) {
	text, err := manifests.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return cluster.Parse(text)
}

// repositoryFiles are the first contents of the Git repository.
func repositoryFiles() (map[string]string, error) {
	files := make(map[string]string)
	for _, dir := range []string{GuestbookPath, ConfigPath} {
		name := dir + "/" + dir + ".yaml"
		text, err := fs.ReadFile(manifests, "manifests/"+name)
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	return files, nil
}

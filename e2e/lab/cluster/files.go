package cluster

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// pkiFiles are the paths of what the API server reads.
type pkiFiles struct {
	certificate, key, tokens string
	ca, client, clientKey    string // of the API server as the client of kubelets; empty without Options.Nodes
	auditPolicy              string // empty without Options.Audit
}

// token is what a user shows to the API server. It is not a secret: it opens a cluster on loopback that holds nothing.
func token(user string) string { return "token-of-" + user }

func writeFiles(options Options) (pkiFiles, error) {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
	if options.Nodes != nil {
		addresses = append(addresses, options.Nodes.Address)
	}
	pair, err := options.CA.IssueServer(pki.ServerOptions{Names: []string{"localhost", "kubernetes", "kubernetes.default.svc"}, Addresses: addresses})
	if err != nil {
		return pkiFiles{}, err
	}
	var tokens bytes.Buffer
	fmt.Fprintf(&tokens, "%s,%s,%s,system:masters\n", token(Admin), Admin, Admin)
	for _, user := range append([]string{Person}, options.Users...) {
		fmt.Fprintf(&tokens, "%s,%s,%s\n", token(user), user, user)
	}
	var files pkiFiles
	if options.Nodes != nil {
		for _, node := range options.Nodes.Names {
			fmt.Fprintf(&tokens, "%s,%s,%s,system:nodes\n", token(NodeUser(node)), NodeUser(node), node)
		}
		if err := files.writeForNodes(options); err != nil {
			return pkiFiles{}, err
		}
	}
	if options.Audit {
		if files.auditPolicy, err = writeAuditPolicy(options); err != nil {
			return pkiFiles{}, err
		}
	}
	for _, file := range []struct {
		path *string
		name string
		data []byte
	}{
		{&files.certificate, "apiserver.crt", pair.Certificate},
		{&files.key, "apiserver.key", pair.Key},
		{&files.tokens, "tokens.csv", tokens.Bytes()},
	} {
		*file.path, err = options.Host.Write(options.file(file.name), file.data)
		if err != nil {
			return pkiFiles{}, err
		}
	}
	return files, nil
}

// file is where a file of the cluster is in the host's folder.
func (o Options) file(name string) string { return filepath.Join("clusters", o.Name, name) }

func kubeconfig(cluster, user, address, namespace string, ca []byte) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster: {Server: "https://" + address, CertificateAuthorityData: ca},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {Token: token(user)}},
		Contexts: map[string]*clientcmdapi.Context{
			cluster: {Cluster: cluster, AuthInfo: user, Namespace: namespace},
		},
		CurrentContext: cluster,
	})
}

package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/toolset"
)

// startControlPlane starts etcd and the API server.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	var err error
	var ports []int
	c.Etcd, ports, err = c.host.Launch(ctx, host.Program{
		Name: c.Name + "-etcd", Path: c.tools.Program(toolset.Etcd), Ports: 2,
		Args: etcdArgs,
		Ready: func(ports []int) func(context.Context) error {
			return process.Answers(impatient(&http.Transport{}), "http://"+port.Address(ports[0])+"/health")
		},
	})
	if err != nil {
		return err
	}
	etcd := "http://" + port.Address(ports[0])
	c.APIServer, ports, err = c.host.Launch(ctx, host.Program{
		Name: c.Name + "-kube-apiserver", Path: c.tools.Program(toolset.APIServer), Ports: 1,
		Args:  func(ports []int) []string { return c.apiServerArgs(etcd, ports[0]) },
		Ready: func(ports []int) func(context.Context) error { return apiServerReady(c.at(ports[0])) },
	})
	if err != nil {
		return err
	}
	c.Address = c.at(ports[0])
	return nil
}

// at is where the API server listens on a port.
func (c *Cluster) at(number int) string {
	if c.nodes == nil {
		return port.Address(number)
	}
	return net.JoinHostPort(c.nodes.Address.String(), strconv.Itoa(number))
}

// dataFolder is where etcd keeps its data, in its working directory.
const dataFolder = "data"

func etcdArgs(ports []int) []string {
	client, peer := "http://"+port.Address(ports[0]), "http://"+port.Address(ports[1])
	return []string{
		"--name=lab", "--data-dir=" + dataFolder, "--log-level=warn",
		"--unsafe-no-fsync", // what is in here need not live through a power cut
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
	}
}

func (c *Cluster) apiServerArgs(etcd string, secure int) []string {
	args := []string{
		"--etcd-servers=" + etcd,
		"--secure-port=" + strconv.Itoa(secure),
		"--tls-cert-file=" + c.files.certificate, "--tls-private-key-file=" + c.files.key,
		"--token-auth-file=" + c.files.tokens,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.files.certificate,
		"--service-account-signing-key-file=" + c.files.key,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--profiling=false",
	}
	if c.nodes == nil {
		args = append(args, "--bind-address=127.0.0.1", "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	} else {
		args = append(args, c.nodesArgs()...)
	}
	if c.files.auditPolicy != "" {
		args = append(args, auditArgs(c.files.auditPolicy)...)
	}
	return args
}

// apiServerReady asks without a user: whether the server is ready is for everybody to know.
func apiServerReady(address string) func(context.Context) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the probe asks whether it is there, not who it is
	}}
	return process.Answers(impatient(transport), fmt.Sprintf("https://%s/readyz", address))
}

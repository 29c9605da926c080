package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/host"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/link"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/port"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/process"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	hubargocd "github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
)

// Parts of this project, as they are called in the names of processes.
const (
	principalPart = "-principal"
	agentPart     = "-agent"
)

// Lines that principal and agent write when they have found each other.
const (
	ConnectedPrincipalLine = "An agent connected to the subscription stream"
	ConnectedAgentLine     = "Starting to receive events from event stream"
)

// Principal is a principal on the hub.
type Principal struct {
	*process.Process
	Address    string     // host:port that it listens on for agents
	MetricsURL string     // of its Prometheus metrics
	HealthURL  string     // to append /healthz or /readyz to
	APIServer  *link.Link // between it and the hub's API server; nil when the lab is direct
}

// Agent is an agent on a spoke.
type Agent struct {
	*process.Process
	MetricsURL string     // of its Prometheus metrics
	HealthURL  string     // to append /healthz or /readyz to
	Principal  *link.Link // between it and its principal; nil when the lab is direct
	APIServer  *link.Link // between it and the spoke's API server; nil when the lab is direct
}

// WaitConnected returns when the agent's present life has connected to a principal once.
func (a *Agent) WaitConnected(ctx context.Context) error { return a.WaitLog(ctx, ConnectedAgentLine) }

// NewPrincipal makes a principal on the hub, for the caller to Start. Each has its own ports and links.
func (l *Lab) NewPrincipal(ctx context.Context, options PrincipalOptions) (*Principal, error) {
	if err := l.build(ctx); err != nil {
		return nil, err
	}
	name := l.Host.Unique("hub" + principalPart)
	cable, kubeconfig, err := l.access(ctx, l.Hub, claim{
		user: PrincipalUser, manifest: principalRights, program: name, args: options.Args,
		secrets: map[string]string{"--tls-secret-name": principalSecret, "--tls-ca-secret-name": caSecret},
	})
	if err != nil {
		return nil, err
	}
	certificates, err := l.certificateFlags(name, options.Certificates, "--root-ca-path", "--tls-cert", "--tls-key")
	if err != nil {
		return nil, err
	}
	binary, workload, err := l.workload(name, l.program(options.Programs, "principal"), options.WorkloadAPI)
	if err != nil {
		return nil, err
	}
	path := "/readyz"
	if options.Alive {
		path = "/healthz"
	}
	p, ports, err := l.Host.Define(host.Program{
		Name: name, Path: binary, Env: options.Env, Ports: 3,
		Args: func(ports []int) []string {
			args := []string{
				"--kubeconfig=" + kubeconfig, "--namespace=" + Namespace,
				"--listen-host=127.0.0.1", "--listen-port=" + strconv.Itoa(ports[0]),
				"--metrics-port=" + strconv.Itoa(ports[1]), "--healthz-port=" + strconv.Itoa(ports[2]),
				"--auth=mtls:CN=([^,]+)",
			}
			return slices.Concat(args, workload, certificates, options.Args)
		},
		Ready: answering(2, path),
	})
	if err != nil {
		return nil, err
	}
	return &Principal{
		Process: p, APIServer: cable, Address: port.Address(ports[0]),
		MetricsURL: "http://" + port.Address(ports[1]) + "/metrics",
		HealthURL:  "http://" + port.Address(ports[2]),
	}, nil
}

// NewAgent makes an agent on a spoke, for the caller to Start, which returns when the agent lives: that it is connected
// is for WaitConnected to tell. There may be several on one spoke, and of one name.
func (l *Lab) NewAgent(ctx context.Context, options AgentOptions) (*Agent, error) {
	if err := l.build(ctx); err != nil {
		return nil, err
	}
	options, err := l.complete(options)
	if err != nil {
		return nil, err
	}
	if err := l.pinMode(ctx, options); err != nil {
		return nil, err
	}
	name := l.Host.Unique("spoke-" + options.Spoke + agentPart)
	a := &Agent{}
	var principal, kubeconfig string
	a.APIServer, kubeconfig, err = l.access(ctx, l.spokes[options.Spoke], agentClaim(name, options.Args))
	if err != nil {
		return nil, err
	}
	if a.Principal, principal, err = l.link(ctx, name+" to principal", options.Principal.Address); err != nil {
		return nil, err
	}
	l.spread(a.Principal, options.Principal)
	args, err := l.agentArgs(name, principal, kubeconfig, options)
	if err != nil {
		return nil, err
	}
	binary, workload, err := l.workload(name, l.program(options.Programs, "agent"), options.WorkloadAPI)
	if err != nil {
		return nil, err
	}
	var ports []int
	a.Process, ports, err = l.Host.Define(host.Program{
		Name: name, Path: binary, Env: options.Env, Ports: 2,
		Args: func(ports []int) []string {
			own := []string{"--metrics-port=" + strconv.Itoa(ports[0]), "--healthz-port=" + strconv.Itoa(ports[1])}
			return slices.Concat(own, workload, args)
		},
		Ready: answering(1, "/healthz"),
	})
	if err != nil {
		return nil, err
	}
	a.MetricsURL = "http://" + port.Address(ports[0]) + "/metrics"
	a.HealthURL = "http://" + port.Address(ports[1])
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agents[options.Name] == nil {
		l.agents[options.Name] = a
	}
	return a, nil
}

// pinMode has the hub take an agent in its mode, if the hub knows the agent: nobody else says that an agent is autonomous.
func (l *Lab) pinMode(ctx context.Context, options AgentOptions) error {
	if _, err := identity.ParseAgent(options.Name); err != nil {
		return nil //nolint:nilerr // no Secret is of such an agent
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"%s":"%s"}}}`, hubargocd.LabelMode, options.Mode)
	_, err := l.Hub.Kubernetes.CoreV1().Secrets(Namespace).Patch(ctx, hubargocd.ClusterSecretName(options.Name), types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("agent %s: mode: %w", options.Name, err)
	}
	return nil
}

// complete fills in what the options of an agent leave to the lab.
func (l *Lab) complete(options AgentOptions) (AgentOptions, error) {
	if l.spokes[options.Spoke] == nil {
		return options, fmt.Errorf("agent: there is no spoke %q", options.Spoke)
	}
	if options.Principal == nil {
		options.Principal = l.Principal
	}
	if options.Principal == nil {
		return options, fmt.Errorf("agent on spoke %s: there is no principal for it", options.Spoke)
	}
	if options.Mode == "" {
		options.Mode = "managed"
	}
	if options.Name == "" {
		options.Name = options.Spoke
	}
	if options.Name != options.Spoke && options.Certificates == nil && options.WorkloadAPI == "" {
		// The Secret on the spoke names the spoke.
		pair, err := l.CA.IssueClient(pki.ClientOptions{CommonName: options.Name})
		if err != nil {
			return options, fmt.Errorf("agent %s: %w", options.Name, err)
		}
		options.Certificates = &Certificates{CA: l.CA.PEM().Certificate, Certificate: pair.Certificate, Key: pair.Key}
	}
	return options, nil
}

func (l *Lab) agentArgs(name, principal, kubeconfig string, options AgentOptions) ([]string, error) {
	certificates, err := l.certificateFlags(
		name, options.Certificates, "--root-ca-path", "--tls-client-cert", "--tls-client-key")
	if err != nil {
		return nil, err
	}
	address, number, err := net.SplitHostPort(principal)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--kubeconfig=" + kubeconfig, "--namespace=" + Namespace, "--agent-mode=" + options.Mode,
		"--server-address=" + address, "--server-port=" + number, "--creds=mtls:any",
	}
	if spoke := l.spokes[options.Spoke]; spoke.ArgoCD != nil {
		args = append(args, "--redis-addr="+spoke.ArgoCD.RedisAddress, "--redis-password="+argocd.RedisPassword)
	} else {
		args = append(args, "--enable-resource-proxy=false") // which asks Argo CD's Redis what it may do
	}
	return append(append(args, certificates...), options.Args...), nil
}

// link lays a link to an address, unless the lab is direct, and returns what to dial.
func (l *Lab) link(ctx context.Context, name, target string) (*link.Link, string, error) {
	if l.options.Direct {
		return nil, target, nil
	}
	cable, err := l.Host.Link(ctx, name, target)
	if err != nil {
		return nil, "", err
	}
	return cable, cable.Address(), nil
}

// certificateFlags writes certificates to files, and makes flags of them.
func (l *Lab) certificateFlags(name string, c *Certificates, ca, certificate, key string) ([]string, error) {
	if c == nil {
		return nil, nil
	}
	var flags []string
	for _, file := range []struct {
		flag, name string
		data       []byte
	}{{ca, "ca.crt", c.CA}, {certificate, "tls.crt", c.Certificate}, {key, "tls.key", c.Key}} {
		if file.data == nil {
			continue
		}
		path, err := l.Host.Write(CertificateFile(name, file.name), file.data)
		if err != nil {
			return nil, err
		}
		flags = append(flags, file.flag+"="+path)
	}
	return flags, nil
}

// CertificateFile is where a process that was given Certificates has them, under the Host's folder, for Host.Write to
// replace. The files are ca.crt, tls.crt and tls.key.
func CertificateFile(process, file string) string {
	return filepath.Join("certificates", process, file)
}

// workload returns what to run a program by, and its flags for a Workload API, if there is one.
func (l *Lab) workload(name, program, workloadAPI string) (path string, flags []string, err error) {
	if workloadAPI == "" {
		return program, nil, nil
	}
	dir, err := l.Host.Folder("workloads", name)
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, filepath.Base(program))
	if err := os.Link(program, path); err != nil {
		return "", nil, fmt.Errorf("%s: binary of its own: %w", name, err)
	}
	return path, []string{"--spiffe-endpoint-socket=" + workloadAPI}, nil
}

// program is the path of one of this project's, in a folder, or as it was built from the checkout if that is empty.
func (l *Lab) program(folder, name string) string {
	if folder == "" {
		return l.binary(name)
	}
	return filepath.Join(folder, name)
}

func (l *Lab) binary(name string) string { return filepath.Join(l.Host.Dir(), "bin", name) }

// build makes this project's binaries from the checkout that the lab runs in, once.
func (l *Lab) build(ctx context.Context) error {
	l.building.Lock()
	defer l.building.Unlock()
	if l.built {
		return nil
	}
	dir, err := l.Host.Folder("bin")
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", dir}, l.options.BuildFlags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./principal", "./agent", "./kubeproxy", "./redisproxy", "./xds", "./agentctl")...)
	cmd.Dir = l.repository
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), l.options.BuildEnv...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	if err := os.Rename(l.binary("agentctl"), l.AgentctlPath()); err != nil {
		return fmt.Errorf("build the programs: %w", err)
	}
	l.built = true
	l.options.Progress("the programs are built")
	return nil
}

// answering is a probe of one of a program's ports by HTTP.
func answering(which int, path string) func(ports []int) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ports []int) func(context.Context) error {
		return process.Answers(client, "http://"+port.Address(ports[which])+path)
	}
}

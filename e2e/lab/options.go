package lab

import (
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
)

// Namespace is where Argo CD, the principal and the agents live on their clusters.
const Namespace = argocd.Namespace

// CANamespace is where argocd-agentctl keeps the CA with its private key, on the hub.
const CANamespace = Namespace + "-agent-ca"

// Paths in the Git repository of the lab.
const (
	GuestbookPath = "guestbook" // a ConfigMap, a Deployment of two Pods and a Service
	ConfigPath    = "config"    // a ConfigMap, for where no Pods run
)

// Names of the users that principals and agents are to their API servers. What gives them their rights is called the same.
const (
	PrincipalUser = "argocd-agent-principal"
	AgentUser     = "argocd-agent-agent"
	// WideAgentUser is the user of agents with --destination-based-mapping=true, which need more.
	WideAgentUser = "argocd-agent-wide-agent"
)

// Options declare a lab. The zero value is a hub alone, with Argo CD's definitions and none of its programs.
type Options struct {
	Spokes []string // names of the spokes, which are their agents' names too
	ArgoCD bool     // real Argo CD: server on the hub, application controller on each spoke
	Pods   bool     // Deployments and Pods come to life on the spokes; namespaces that are deleted end, on the hub too
	Agents bool     // one principal and an agent for each spoke, started and connected
	// HubController adds an application controller on the hub, which pushes to clusters that the hub reaches itself: what
	// people have before they install a principal beside it.
	HubController bool
	// Audit has the API servers write down what principals and agents ask of them.
	Audit bool
	// Direct leaves the links out: parts talk to each other without a proxy between them that takes time of its own. The
	// links of the principal and agents are nil then.
	Direct bool

	// Principals is how many principals Agents starts; one if it is 0. Several know each other, and links to the first lead to all in turns.
	Principals int
	Principal  PrincipalOptions // of the principals that Agents starts
	Agent      AgentOptions     // of the agents that Agents starts; Spoke and Name are set for each

	// Tools names modules of toolset.Slow whose programs and files the lab has besides, or instead of others of the same names.
	Tools []string

	// BuildFlags are given to `go build` for this project's programs, such as -race, and BuildEnv, as KEY=value.
	BuildFlags, BuildEnv []string

	Dir  string // where everything is kept: a folder that is empty or does not exist; the empty string for a new one
	Keep bool   // whether the folder is left when the lab is closed

	// Progress is told what is going on, a line at a time, by many goroutines. Nil for nobody.
	Progress func(line string)
}

// PrincipalOptions change a principal from what the lab would run.
type PrincipalOptions struct {
	// Args are more flags, as --flag=value; a flag given again wins. Rights follow the namespace, the Secrets and the mapping that
	// they name, if they are written so.
	Args []string
	Env  []string // as KEY=value
	// Certificates are given as files instead of the Secrets that the lab has put on the hub.
	Certificates *Certificates
	// WorkloadAPI is the address of the SPIFFE Workload API that it takes certificates from, if it is not empty. It runs by a hard link
	// of its own then: its Path is what SPIRE knows it by.
	WorkloadAPI string
	// Programs is a folder with builds of this project's programs to run instead of the checkout's, such as an earlier release.
	Programs string
	// Alive makes Start return when the principal lives (/healthz) rather than when it is ready (/readyz).
	Alive bool
}

// AgentOptions change an agent from what the lab would run.
type AgentOptions struct {
	Spoke        string     // the cluster that it works on; required
	Name         string     // whom its certificate names; the spoke's name when empty
	Mode         string     // managed when empty
	Principal    *Principal // whom it dials; the lab's first one when nil
	Args         []string   // as a principal's
	Env          []string   // as KEY=value
	Certificates *Certificates
	WorkloadAPI  string // as a principal's
	Programs     string // as a principal's
}

// Certificates are PEM texts that replace what the lab would issue. An empty one is left out altogether.
type Certificates struct {
	CA, Certificate, Key []byte
}

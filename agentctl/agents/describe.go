package agents

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/blocklist"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/facets"
)

// describe returns what a cluster Secret says about an agent, and its problems.
func (k *hubState) describe(ctx context.Context, s *corev1.Secret, name string) (Agent, error) {
	cluster, err := argocd.ReadCluster(s)
	agent := Agent{
		Name: name, Secret: s.Namespace + "/" + s.Name, Server: cluster.Server, Labels: maps.Clone(s.Labels),
		SelfRegistered: argocd.IsSelfRegistered(s), Mode: cmp.Or(s.Labels[argocd.LabelMode], string(facets.Managed)),
		HeldDeletions: k.heldCount(name),
		Problems:      append(secretProblems(s, cluster, name), k.heldProblems(name)...),
	}
	for _, label := range []string{argocd.LabelSecretType, argocd.LabelAgent, argocd.LabelSelfRegistered} {
		delete(agent.Labels, label)
	}
	if _, unfit := ParseName(k.hub, name); unfit != nil {
		agent.Problems = append(agent.Problems, unfit.Error())
	}
	if key := blocklist.Agent(identity.Agent(name)); k.blocked.Has(key) {
		agent.Problems = append(agent.Problems, "it is blocked, which argocd-agentctl agent unblock "+name+" ends")
	}
	if err != nil {
		agent.Problems = append(agent.Problems, err.Error())
		return agent, nil
	}
	cluster.Agent = name // a wrong label was reported above
	agent.Token = k.keys.describe(cluster.Access.BearerToken)
	about, problems := k.access(cluster)
	agent.Certificate = about
	agent.Problems = append(agent.Problems, problems...)
	if agent.Token != nil {
		agent.Problems = append(agent.Problems, agent.Token.problems(name)...)
	}
	missing, err := k.namespaceProblems(ctx, name)
	agent.Problems = append(agent.Problems, missing...)
	return agent, err
}

// secretProblems says what keeps Argo CD, or the principal, from taking a Secret for that of an agent's cluster.
func secretProblems(s *corev1.Secret, c argocd.Cluster, agent string) []string {
	problems := []string{}
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			problems = append(problems, fmt.Sprintf(format, args...))
		}
	}
	add(s.Labels[argocd.LabelSecretType] != argocd.SecretTypeCluster,
		"it has no label %s=%s: Argo CD does not see it", argocd.LabelSecretType, argocd.SecretTypeCluster)
	add(c.Agent != agent, "its label %s is %q, not %q: the principal does not know this agent", argocd.LabelAgent, c.Agent, agent)
	add(s.Annotations[argocd.AnnotationSkipReconcile] != "true",
		"it has no annotation %s=true: an application controller on the hub would work on this cluster too", argocd.AnnotationSkipReconcile)
	add(c.Name != agent, "its key name is %q, not %q: applications name the cluster by the agent", c.Name, agent)
	server, err := url.Parse(c.Server)
	switch {
	case err != nil || server.Host == "":
		add(true, "its key server is %q, which is no address such as %s", c.Server, argocd.ClusterServer(argocd.DefaultResourceProxy, agent))
	default:
		want := argocd.ClusterServer(server.Host, agent)
		switch {
		case c.BySidecar():
			want = argocd.ClusterServerBySidecar(server.Host, agent)
		case c.ByPath():
			want = argocd.ClusterServerByPath(server.Host, agent)
		}
		add(c.Server != want, "its key server is %q, not %q: Argo CD tells clusters apart by it", c.Server, want)
	}
	return problems
}

// access says how Argo CD reaches the resource proxy, and what is wrong with that.
func (k *hubState) access(c argocd.Cluster) (*certificate.Info, []string) {
	if c.BySidecar() {
		if len(c.Access.TLS.Certificate)+len(c.Access.TLS.Key) > 0 {
			return nil, []string{"it has a client certificate, and Argo CD does not use it without TLS: remove it by: argocd-agentctl agent create " +
				c.Agent + " --no-client-cert --upsert"}
		}
		return nil, nil
	}
	var problems []string
	cas, err := certs.ParseCertificates(c.Access.TLS.CAData)
	switch {
	case c.Access.TLS.Insecure:
		problems = append(problems, "it is insecure: Argo CD does not verify the certificate of the resource proxy")
	case len(c.Access.TLS.CAData) == 0:
		problems = append(problems, "it has no CA (caData): Argo CD would not trust the resource proxy's certificate")
	case err != nil:
		problems = append(problems, "its CA (caData) cannot be read: "+err.Error())
	default:
		problems = append(problems, k.proxyProblems(c, cas)...)
	}
	about, more := k.clientCertificate(c, cas)
	return about, append(problems, more...)
}

// proxyProblems says why Argo CD would not trust the resource proxy.
func (k *hubState) proxyProblems(c argocd.Cluster, cas []*x509.Certificate) []string {
	if len(k.proxy) == 0 { // it may have its certificate from elsewhere
		return nil
	}
	const who = "the resource proxy's certificate"
	var problems []string
	use := certificate.Use{As: x509.ExtKeyUsageServerAuth, CAs: cas, Trusting: "this Secret (caData)"}
	for _, problem := range use.Problems(k.proxy, time.Now()) {
		problems = append(problems, who+": "+problem)
	}
	if server, err := url.Parse(c.Server); err == nil && server.Hostname() != "" {
		if err := certificate.Covers(k.proxy[0], server.Hostname()); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v: issue it for that name, or change the server", who, err))
		}
	}
	return problems
}

// clientCertificate says what Argo CD shows to the resource proxy, and why that would not accept it.
func (k *hubState) clientCertificate(c argocd.Cluster, cas []*x509.Certificate) (*certificate.Info, []string) {
	pair := pki.Pair{Certificate: c.Access.TLS.Certificate, Key: c.Access.TLS.Key}
	if len(pair.Certificate) == 0 {
		return nil, []string{"it has no client certificate (certData): the resource proxy asks for one"}
	}
	chain, err := certs.ParseCertificates(pair.Certificate)
	if err != nil {
		return nil, []string{"its client certificate (certData) cannot be read: " + err.Error()}
	}
	const whose = "its client certificate: "
	var problems []string
	if _, err := pair.TLS(); err != nil {
		problems = append(problems, whose+err.Error())
	}
	// With another CA than the hub's, the resource proxy is configured to trust it, as Argo CD is.
	use := k.trusted.Use(x509.ExtKeyUsageClientAuth)
	use.CAs = slices.Concat(cas, use.CAs)
	use.Trusting = "this Secret (caData), nor on the hub"
	for _, problem := range use.Problems(chain, time.Now()) {
		problems = append(problems, whose+problem)
	}
	if problem := ca.CallerProblem(chain[0], c.Agent, c.Access.BearerToken != "" || c.ByPath()); problem != "" {
		problems = append(problems, fmt.Sprintf("%s%s: replace it with: argocd-agentctl agent create %s --upsert", whose, problem, c.Agent))
	}
	if err := k.blocked.Refuses(identity.Certified(chain), ""); err != nil {
		problems = append(problems, whose+err.Error())
	}
	about := certificate.Describe(chain[0])
	return &about, problems
}

// namespaceProblems says whether the namespace of an agent's applications is missing on the hub.
func (k *hubState) namespaceProblems(ctx context.Context, agent string) ([]string, error) {
	if _, err := identity.ParseAgent(agent); err != nil {
		return nil, nil //nolint:nilerr // an invalid name was reported above
	}
	there, err := k.hasNamespace(ctx, agent)
	if err != nil || there {
		return nil, err
	}
	return []string{fmt.Sprintf("the hub has no namespace %s, where the agent's applications are: create it with: %s", agent,
		k.hub.Command("create namespace %s", agent))}, nil
}

package agents

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
)

// Spoke describes the Secrets of an agent on its cluster.
type Spoke struct {
	// From is where the agent has its identity from, if that is not these Secrets.
	From string `json:"identityFrom,omitempty"`
	// Certificate is the agent's client certificate for the principal; nil if it cannot be read.
	Certificate *certificate.Info `json:"certificate,omitempty"`
	// CAs are those that the principal's certificate may come from.
	CAs []certificate.Info `json:"cas,omitempty"`
}

// inspectSpoke adds the certificates on an agent's spoke, and their problems.
func (k *hubState) inspectSpoke(ctx context.Context, spoke *cluster.Client, agent *Agent) error {
	origin, err := OriginOfAgent(ctx, spoke)
	if err != nil {
		return err
	}
	if origin.Elsewhere != "" { // what is in the Secrets is of no use to it
		agent.Spoke = &Spoke{From: origin.Elsewhere}
		return nil
	}
	own, err := spoke.Get(ctx, ca.AgentSecret)
	if err != nil {
		return err
	}
	switch {
	case own == nil && origin.File != "":
		agent.Spoke = &Spoke{From: "the file " + origin.File}
		return nil
	case own == nil && agent.Connection.State == principals.Connected:
		agent.Spoke = &Spoke{From: "elsewhere: it is connected, and " + spoke.Secret(ca.AgentSecret) + " is not there"}
		return nil
	}
	roots, err := spoke.Get(ctx, ca.SecretName)
	if err != nil {
		return err
	}
	agent.Spoke = &Spoke{}
	if own == nil {
		agent.add(spoke.Secret(ca.AgentSecret), []string{"not found: create it with: argocd-agentctl pki issue agent " + agent.Name +
			", unless the agent has its identity from files, SPIFFE or a sidecar, of which neither its Deployment nor the ConfigMap " + manifest.ParamsConfigMap + " says anything"})
	}
	if roots == nil {
		agent.addCertificate(spoke, own, k.trusted)
		agent.add(spoke.Secret(ca.SecretName), []string{"not found: create it with: argocd-agentctl pki propagate"})
		return nil
	}
	trusted, err := ca.ReadTrusted(roots, spoke)
	if err != nil {
		agent.addCertificate(spoke, own, k.trusted)
		agent.Problems = append(agent.Problems, err.Error())
		return nil
	}
	for _, one := range trusted.Certificates {
		agent.Spoke.CAs = append(agent.Spoke.CAs, certificate.Describe(one))
	}
	if origin.ServerID != "" || ofTrustDomain(own) { // the hub's CA is that of others
		agent.addCertificate(spoke, own, trusted)
		return nil
	}
	agent.addCertificate(spoke, own, k.trusted)
	if len(k.trusted.Certificates) > 0 {
		agent.add(trusted.Where, k.trusted.Differs(trusted))
	}
	return nil
}

// addCertificate adds the agent's certificate, if there is one, and its problems.
func (a *Agent) addCertificate(spoke *cluster.Client, own *corev1.Secret, trusted ca.Trusted) {
	if own == nil {
		return
	}
	var problems []string
	a.Spoke.Certificate, problems = ca.Examine(own, trusted.Use(x509.ExtKeyUsageClientAuth))
	if chain, err := ca.ReadPair(own.Data); err == nil && !ofTrustDomain(own) && chain[0].Subject.CommonName != a.Name {
		problems = append(problems, fmt.Sprintf("its common name is %q, by which the principal knows an agent unless its --auth reads another name",
			chain[0].Subject.CommonName))
	}
	a.add(spoke.Secret(ca.AgentSecret), problems)
}

// ofTrustDomain reports whether the certificate in a Secret is an X.509-SVID: it is by a CA of its trust domain, and its SPIFFE ID says whose it is.
func ofTrustDomain(own *corev1.Secret) bool {
	if own == nil {
		return false
	}
	chain, err := ca.ReadPair(own.Data)
	if err != nil {
		return false
	}
	_, err = x509svid.IDFromCert(chain[0])
	return err == nil
}

// add adds problems with something.
func (a *Agent) add(what string, problems []string) {
	for _, problem := range problems {
		a.Problems = append(a.Problems, what+": "+problem)
	}
}

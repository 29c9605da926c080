package agents

import (
	"context"
	"crypto/x509"
	"fmt"

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
	var problems []string
	if own == nil {
		problems = append(problems, "not found: create it with: argocd-agentctl pki issue agent "+agent.Name+
			", unless the agent has its identity from files, SPIFFE or a sidecar, of which neither its Deployment nor the ConfigMap "+manifest.ParamsConfigMap+" says anything")
	} else {
		agent.Spoke.Certificate, problems = ca.Examine(own, k.trusted.Use(x509.ExtKeyUsageClientAuth))
		if chain, err := ca.ReadPair(own.Data); err == nil && chain[0].Subject.CommonName != agent.Name {
			problems = append(problems, fmt.Sprintf("its common name is %q, by which the principal knows an agent unless its --auth reads another name",
				chain[0].Subject.CommonName))
		}
	}
	agent.add(spoke.Secret(ca.AgentSecret), problems)
	if roots == nil {
		agent.add(spoke.Secret(ca.SecretName), []string{"not found: create it with: argocd-agentctl pki propagate"})
		return nil
	}
	trusted, err := ca.ReadTrusted(roots, spoke)
	if err != nil {
		agent.Problems = append(agent.Problems, err.Error())
		return nil
	}
	for _, one := range trusted.Certificates {
		agent.Spoke.CAs = append(agent.Spoke.CAs, certificate.Describe(one))
	}
	if len(k.trusted.Certificates) > 0 {
		agent.add(trusted.Where, k.trusted.Differs(trusted))
	}
	return nil
}

// add adds problems with something.
func (a *Agent) add(what string, problems []string) {
	for _, problem := range problems {
		a.Problems = append(a.Problems, what+": "+problem)
	}
}

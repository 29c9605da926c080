// Package validate looks whether a hub, and an agent's cluster, are installed as they should be. It changes nothing, and asks no program:
// what runs, and why it may not, is the business of package doctor.
package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/agents"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/ca"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/checks"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/principals"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/signingkey"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/namespaces"
)

// Where Argo CD keeps in which namespaces it looks for Applications.
const (
	parameters            = "argocd-cmd-params-cm"
	applicationNamespaces = "application.namespaces"
)

// Principal looks at the hub. The CA's private key is not asked for.
func Principal(ctx context.Context, hub *cluster.Client) ([]checks.Check, error) {
	known, err := agents.List(ctx, hub, "", unasked)
	if err != nil {
		return nil, err
	}
	all := []checks.Check{installScope(ctx, hub, known)}
	issued, err := certificates(ctx, hub)
	if err != nil {
		return nil, err
	}
	all = append(all, issued...)
	names, err := routes(ctx, hub)
	if err != nil {
		return nil, err
	}
	deployed, err := workloads(ctx, hub, onHub)
	if err != nil {
		return nil, err
	}
	all = append(append(all, names, signing(ctx, hub, known), noApplications(ctx, hub)), deployed...)
	for i := range known {
		all = append(all, checks.Of("agent "+known[i].Name+" ("+known[i].Secret+")", known[i].Server, known[i].Problems...))
	}
	if len(known) == 0 {
		all = append(all, checks.Skip("agents", "there is none: create one with argocd-agentctl agent create"))
	}
	return all, nil
}

// certificates looks at the CA and what it issued for the hub. Where the principal has its identity from elsewhere there need be none.
func certificates(ctx context.Context, hub *cluster.Client) ([]checks.Check, error) {
	origin, err := agents.OriginOfPrincipal(ctx, hub)
	if err != nil {
		return nil, err
	}
	own, err := hub.Get(ctx, ca.SecretName)
	if err != nil {
		return nil, err
	}
	trusted, err := ca.LoadTrusted(ctx, hub)
	about := ""
	if err == nil {
		about = fmt.Sprintf("%d CA certificates, the first until %s", len(trusted.Certificates), certificate.Stamp(trusted.Certificates[0].NotAfter))
	}
	needless := "not found, and the principal has its identity from " + origin.Elsewhere
	made := []checks.Check{checks.Err("CA certificate ("+hub.Namespace+"/"+ca.SecretName+")", about, err)}
	if own == nil && origin.Elsewhere != "" {
		made[0] = checks.Skip(made[0].Name, needless)
	}
	entries, err := ca.Certificates(ctx, hub, trusted)
	for _, entry := range entries {
		name := "certificate (" + entry.Secret + ")"
		if entry.Missing && origin.Elsewhere != "" {
			made = append(made, checks.Skip(name, needless))
			continue
		}
		made = append(made, checks.Of(name, until(entry.Certificate), entry.Problems...))
	}
	return made, err
}

// unasked stands for principals that nobody asks whether agents are connected.
func unasked() principals.Presence { return principals.Presence{Unknown: errors.New("not asked")} }

func until(c *certificate.Info) string {
	if c == nil {
		return ""
	}
	return "valid until " + certificate.Stamp(c.NotAfter)
}

// installScope looks whether Argo CD on the hub sees the namespaces in which agents' Applications are.
func installScope(ctx context.Context, hub *cluster.Client, known []agents.Agent) checks.Check {
	const name = "install scope of Argo CD"
	data, err := hub.ConfigMapData(ctx, parameters)
	if err != nil {
		return checks.Err(name, "", err)
	}
	patterns := strings.FieldsFunc(data[applicationNamespaces], func(r rune) bool { return r == ',' || r == ' ' })
	if len(patterns) == 0 {
		return checks.Skip(name, fmt.Sprintf("%s has no %s: is --application-namespaces of argocd-server set, so that it shows the agents' Applications?",
			hub.ConfigMap(parameters), applicationNamespaces))
	}
	list, err := namespaces.Parse(patterns)
	if err != nil {
		return checks.Err(name, "", fmt.Errorf("%s: %s: %w", hub.ConfigMap(parameters), applicationNamespaces, err))
	}
	var missing []string
	for i := range known {
		if !list.Has(known[i].Name) {
			missing = append(missing, known[i].Name)
		}
	}
	if len(missing) > 0 {
		return checks.Of(name, "", fmt.Sprintf("%s: %s does not have %s: where an agent's Applications are in the namespace of its name, Argo CD does not show them: add it",
			hub.ConfigMap(parameters), applicationNamespaces, strings.Join(slices.Compact(missing), ", ")))
	}
	return checks.Of(name, applicationNamespaces+" "+strings.Join(patterns, ","))
}

// signing looks at the key of bearer tokens. Without one there need be none.
func signing(ctx context.Context, hub *cluster.Client, known []agents.Agent) checks.Check {
	name := "JWT signing key (" + hub.Namespace + "/" + signingkey.SecretName + ")"
	about, err := signingkey.Inspect(ctx, hub)
	if err == nil {
		return checks.Of(name, about.Key())
	}
	there, getErr := hub.Get(ctx, signingkey.SecretName)
	used := slices.ContainsFunc(known, func(a agents.Agent) bool { return a.Token != nil })
	if there == nil && getErr == nil && !used {
		return checks.Skip(name, "not found, and no agent's cluster has a bearer token")
	}
	return checks.Err(name, "", err)
}

// noApplications looks whether Applications are where no agent's are: with a namespace for each agent, the principal's own is nobody's.
func noApplications(ctx context.Context, hub *cluster.Client) checks.Check {
	name := "no Applications in namespace " + hub.Namespace
	found, err := hub.Applications(ctx)
	if err != nil || len(found) == 0 {
		return checks.Err(name, "", err)
	}
	return checks.Of(name, "", fmt.Sprintf("there are %d, such as %s: no agent gets them where each has a namespace of its own on the hub: move them there. "+
		"With --destination-based-mapping they may be here", len(found), found[0]))
}

// Agent looks at an agent's cluster, and whether it fits the hub. The name is what its certificate says if it is empty.
func Agent(ctx context.Context, hub, spoke *cluster.Client, name string) ([]checks.Check, error) {
	own, err := spoke.Get(ctx, ca.AgentSecret)
	if err != nil {
		return nil, err
	}
	if own != nil && name == "" {
		if chain, err := ca.ReadPair(own.Data); err == nil {
			name = chain[0].Subject.CommonName
		}
	}
	if name == "" {
		return nil, fmt.Errorf("%s: no certificate says which agent this is: give its name, as in: argocd-agentctl validate agent berlin", spoke.Secret(ca.AgentSecret))
	}
	about, err := agents.Inspect(ctx, hub, spoke, name, unasked)
	if err != nil {
		return nil, err
	}
	client, trust := spoke.Secret(ca.AgentSecret), spoke.Secret(ca.SecretName)
	trustProblems := of(about.Problems, trust)
	if roots, err := spoke.Get(ctx, ca.SecretName); err != nil {
		return nil, err
	} else if roots != nil && len(roots.Data[secret.PrivateKeyKey]) > 0 {
		trustProblems = append(trustProblems, "it has a private key: whoever has it can be any agent: it belongs on the hub only")
	}
	rest := slices.DeleteFunc(slices.Clone(about.Problems), func(p string) bool { return strings.HasPrefix(p, client) || strings.HasPrefix(p, trust) })
	deployed, err := workloads(ctx, spoke, onSpoke(about.Mode))
	if err != nil {
		return nil, err
	}
	onHub := checks.Of("agent "+name+" on the hub ("+about.Secret+")", about.Server, rest...)
	if about.Spoke.From != "" {
		return append([]checks.Check{onHub, checks.Skip("certificate of agent "+name, "the agent has its identity from "+about.Spoke.From)}, deployed...), nil
	}
	return append([]checks.Check{
		onHub,
		checks.Of("certificate of agent "+name+" ("+spoke.Namespace+"/"+ca.AgentSecret+")", until(about.Spoke.Certificate), of(about.Problems, client)...),
		checks.Of("CA certificate ("+spoke.Namespace+"/"+ca.SecretName+")", "", trustProblems...),
	}, deployed...), nil
}

// of returns the problems of one Secret, without its name.
func of(problems []string, where string) []string {
	var found []string
	for _, problem := range problems {
		if text, ok := strings.CutPrefix(problem, where+": "); ok {
			found = append(found, text)
		}
	}
	return found
}

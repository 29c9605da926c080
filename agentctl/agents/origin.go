package agents

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/manifest"
)

// Origin is where a program has its identity from, as its Deployment and the ConfigMap argocd-agent-params say.
type Origin struct {
	// Elsewhere says from where, if that is not the Secrets that argocd-agentctl makes; empty if it is, or if nothing says.
	Elsewhere string
	// File is the file of its certificate, empty for none. It may well be one of such a Secret, which is mounted there.
	File string
	// ServerID is the SPIFFE ID by which an agent knows the principal; empty where that is the name of its host.
	ServerID string
}

// setting is how a program is told something: by a flag, by a variable, or by a key of the ConfigMap.
type setting struct{ flag, variable, key string }

// identitySettings are those of a program's identity.
type identitySettings struct {
	deployment                                    string
	plaintext, credentials, certificate, serverID setting
}

// socket is the setting of all programs for the SPIFFE Workload API.
func socket() setting { return setting{"--spiffe-endpoint-socket", "SPIFFE_ENDPOINT_SOCKET", ""} }

// OriginOfAgent returns where the agent on a cluster has its identity from.
func OriginOfAgent(ctx context.Context, spoke *cluster.Client) (Origin, error) {
	return settingsOfAgent().read(ctx, spoke)
}

func settingsOfAgent() identitySettings {
	return identitySettings{
		deployment:  manifest.ServiceAccount,
		plaintext:   setting{"--insecure-plaintext", "ARGOCD_AGENT_INSECURE_PLAINTEXT", "agent.tls.insecure-plaintext"},
		credentials: setting{"--creds", "ARGOCD_AGENT_CREDS", "agent.creds"},
		certificate: setting{"--tls-client-cert", "ARGOCD_AGENT_TLS_CLIENT_CERT_PATH", "agent.tls.client.cert-path"},
		serverID:    setting{"--principal-spiffe-id", "ARGOCD_AGENT_PRINCIPAL_SPIFFE_ID", manifest.ServerIDKey},
	}
}

// OriginOfPrincipal returns where the principal of a hub has its identity from.
func OriginOfPrincipal(ctx context.Context, hub *cluster.Client) (Origin, error) {
	return identitySettings{
		deployment:  "argocd-agent-principal",
		plaintext:   setting{"--insecure-plaintext", "ARGOCD_PRINCIPAL_INSECURE_PLAINTEXT", "principal.tls.insecure-plaintext"},
		certificate: setting{"--tls-cert", "ARGOCD_PRINCIPAL_TLS_SERVER_CERT_PATH", "principal.tls.server.cert-path"},
	}.read(ctx, hub)
}

// read asks a cluster. What may not be looked at says nothing.
func (i identitySettings) read(ctx context.Context, c *cluster.Client) (Origin, error) {
	params, err := c.ConfigMapData(ctx, manifest.ParamsConfigMap)
	if err != nil && !apierrors.IsForbidden(err) {
		return Origin{}, err
	}
	workloads, err := c.Workloads(ctx)
	if err != nil && !apierrors.IsForbidden(err) {
		return Origin{}, err
	}
	t := told{params: params}
	if at := slices.IndexFunc(workloads, func(w cluster.Workload) bool { return w.Name == i.deployment }); at >= 0 {
		t.workload = &workloads[at]
	}
	return t.origin(i), nil
}

// told is what a program is told at its start, as far as its cluster says.
type told struct {
	params   map[string]string
	workload *cluster.Workload // nil if there is none
}

// value returns the value of a setting: a flag wins over its variable.
func (t told) value(s setting) string {
	if t.workload != nil {
		if value, there := t.workload.Flag(s.flag); there {
			return value
		}
		if value := t.workload.Variable(s.variable); value != "" {
			return value
		}
	}
	return t.params[s.key]
}

func (t told) origin(i identitySettings) Origin {
	o := Origin{ServerID: t.value(i.serverID), File: t.value(i.certificate)}
	from := t.value(socket())
	switch {
	case t.value(i.plaintext) == "true":
		o.Elsewhere = "its sidecar, which speaks mutual TLS for it"
	case strings.HasPrefix(t.value(i.credentials), "jwt-svid:"):
		o.Elsewhere = "JWT-SVIDs of the SPIFFE Workload API"
	case o.File == "" && from != "": // files win
		o.Elsewhere = "the SPIFFE Workload API at " + from
	}
	return o
}

package e2e_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/argocd"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/envoy"
)

// argoServer is the SPIFFE ID of argocd-server in the mesh of these tests.
const argoServer = "spiffe://lab.test/ns/argocd/sa/argocd-server"

// keyless is a lab in which argocd-server and kubeproxy have sidecars, and no cluster Secret a key.
type keyless struct {
	lab       *lab.Lab
	kubeproxy *lab.Proxy
	front     *envoy.Envoy // kubeproxy's sidecar
}

// sidecar runs that of a workload of the hub which asks kubeproxy.
func (k *keyless) sidecar(t *testing.T, spiffeID string) *envoy.Envoy {
	t.Helper()
	identity, err := k.lab.ClientIdentity(spiffeID)
	require.NoError(t, err)
	return k.run(t, envoy.Options{Name: "argocd-envoy", Backend: envoy.Backend{Address: k.front.Address, Identity: identity, HTTP1: true}})
}

func (k *keyless) run(t *testing.T, options envoy.Options) *envoy.Envoy {
	t.Helper()
	e, err := k.lab.StartEnvoy(t.Context(), options)
	require.NoError(t, err)
	return e
}

func newKeyless(t *testing.T, agent string) *keyless {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	l, err := lab.Start(ctx, lab.Options{Spokes: []string{agent}, ArgoCD: true, Pods: true, Agents: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	k := &keyless{lab: l}
	k.kubeproxy, err = l.NewKubeproxy(ctx, lab.ProxyOptions{Args: []string{"--insecure-plaintext", "--callers=" + argoServer + "=*"}})
	require.NoError(t, err)
	require.NoError(t, k.kubeproxy.Start(ctx))
	identity, err := l.ServerIdentity()
	require.NoError(t, err)
	k.front = k.run(t, envoy.Options{
		Name: "kubeproxy-envoy", Listener: envoy.Listener{Identity: identity}, Backend: envoy.Backend{Address: k.kubeproxy.Address, HTTP1: true},
	})
	return k
}

// asks asks for the version of an agent's API server through a sidecar, with headers of its own.
func (k *keyless) asks(t *testing.T, through *envoy.Envoy, agent string, headers ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+through.Address+"/agents/"+agent+"/version", http.NoBody)
	require.NoError(t, err)
	r.Header["X-Forwarded-Client-Cert"] = headers
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// What a person does in Argo CD's UI works where its sidecar proves who it is, and no cluster Secret has a key.
func TestLiveAccessWithoutAKeyForEachCluster(t *testing.T) {
	t.Parallel()
	const agent = "mesh"
	k := newKeyless(t, agent)
	argo := k.sidecar(t, argoServer)
	_, err := k.lab.Agentctl(t.Context(), "agent", "create", agent, "--no-client-cert", "--upsert", "--resource-proxy-server="+argo.Address)
	require.NoError(t, err)
	secret := secretOf(t, k.lab.Hub, lab.Namespace, "cluster-"+agent)
	require.Equal(t, "http://"+argo.Address+"/agents/"+agent+"?agentName="+agent, string(secret.Data["server"]))
	require.JSONEq(t, `{"tlsClientConfig":{"insecure":false}}`, string(secret.Data["config"]), "it holds no key")
	shown, err := k.lab.Agentctl(t.Context(), "agent", "inspect", agent)
	require.NoError(t, err)
	require.NotContains(t, shown, "PROBLEM")

	g := &guestbook{twin: &twin{
		hub: side{k.lab.Hub, argocd.Named(agent, "keyless")}, spoke: side{k.lab.Spoke(agent), argocd.Named(lab.Namespace, "keyless")},
		declared: argocd.Application{
			Namespace: agent, Name: "keyless", RepoURL: k.lab.Git.URL, Path: lab.GuestbookPath, Destination: agent, Into: "keyless",
		},
	}}
	g.create(t, finalize(cascadeFinalizer))
	g.hub.becomes(t, syncedAndHealthy)
	for _, n := range g.tree(t) {
		if n.Kind == "Pod" {
			g.pod = n.Name
		}
	}
	g.readsAndEdits(t)
	g.readsLogs(t)
	c := g.terminal(t)
	c.says(t, message{Operation: "stdin", Data: "echo $((6 * 7)) of them\n"})
	c.shows(t, "42 of them")

	// Another workload of the mesh is no caller, whatever it says of itself.
	mark := k.kubeproxy.Mark()
	evil := k.sidecar(t, "spiffe://lab.test/ns/evil/sa/evil")
	reason := `its SPIFFE ID "spiffe://lab.test/ns/evil/sa/evil" is of no form in the setting --callers`
	for _, headers := range [][]string{nil, {"URI=" + argoServer}, {"URI=" + argoServer, "URI=" + argoServer}} {
		status, body := k.asks(t, evil, agent, headers...)
		require.Equal(t, http.StatusUnauthorized, status, body)
		require.Contains(t, body, "in the setting --callers")
	}
	saysNow(t, k.kubeproxy, mark, "Request refused", logged(reason))
	status, body := k.asks(t, argo, agent)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, "gitVersion")
	status, body = k.asks(t, argo, "nobody")
	require.Equal(t, http.StatusNotFound, status, body)
}

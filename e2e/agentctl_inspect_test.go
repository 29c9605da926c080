package e2e_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/token"
)

// inspects returns what argocd-agentctl knows of an agent.
func (a admin) inspects(t *testing.T, arguments string) agentReport {
	t.Helper()
	return decoded[agentReport](t, a, "agent inspect "+arguments)
}

// access changes what Argo CD's configuration of an agent's cluster says.
func access(t *testing.T, change func(config map[string]any, tls map[string]any)) func(*corev1.Secret) {
	t.Helper()
	return func(s *corev1.Secret) {
		var config map[string]any
		require.NoError(t, json.Unmarshal(s.Data["config"], &config))
		change(config, config["tlsClientConfig"].(map[string]any))
		var err error
		s.Data["config"], err = json.Marshal(config)
		require.NoError(t, err)
	}
}

func TestAgentInspectReportsProblems(t *testing.T) {
	t.Parallel()
	a := ready(t)
	require.Empty(t, a.inspects(t, "berlin --agent-context spoke-b").Problems)
	strangers := newCA(t, "strangers", pki.Validity{})
	now := time.Now()
	certificate := func(pair pki.Pair) func(*corev1.Secret) {
		return access(t, func(_, tls map[string]any) { tls["certData"], tls["keyData"] = pair.Certificate, pair.Key })
	}
	with := func(change func(config, tls map[string]any)) func(*corev1.Secret) { return access(t, change) }
	good := a.secret(t, "cluster-berlin")
	for name, c := range map[string]struct {
		change func(*corev1.Secret)
		want   string
	}{
		"not a cluster":    {func(s *corev1.Secret) { delete(s.Labels, "argocd.argoproj.io/secret-type") }, "Argo CD does not see it"},
		"nobody's":         {func(s *corev1.Secret) { delete(s.Labels, "argocd-agent.argoproj-labs.io/agent-name") }, `is "", not "berlin": the principal does not know this agent`},
		"reconciled":       {func(s *corev1.Secret) { s.Annotations["argocd.argoproj.io/skip-reconcile"] = "false" }, "it has no annotation argocd.argoproj.io/skip-reconcile=true"},
		"misnamed":         {func(s *corev1.Secret) { s.Data["name"] = []byte("paris") }, `its key name is "paris", not "berlin"`},
		"nowhere":          {func(s *corev1.Secret) { s.Data["server"] = nil }, "which is no address such as https://argocd-agent-resource-proxy:9090?agentName=berlin"},
		"mistakable":       {func(s *corev1.Secret) { s.Data["server"] = []byte("https://argocd-agent-resource-proxy:9090") }, "Argo CD tells clusters apart by it"},
		"behind another":   {func(s *corev1.Secret) { s.Data["server"] = []byte("https://other:9090?agentName=berlin") }, "not for other: issue it for that name, or change the server"},
		"no configuration": {func(s *corev1.Secret) { s.Data["config"] = nil }, "it has no client certificate (certData)"},
		"insecure":         {with(func(_, tls map[string]any) { tls["insecure"] = true }), "it is insecure"},
		"no CA":            {with(func(_, tls map[string]any) { delete(tls, "caData") }), "it has no CA (caData)"},
		"bad CA":           {with(func(_, tls map[string]any) { tls["caData"] = []byte("nonsense") }), "its CA (caData) cannot be read: no certificate in PEM form"},
		"strange CA": {with(func(_, tls map[string]any) { tls["caData"] = strangers.PEM().Certificate }),
			"the resource proxy's certificate: it was issued by CN=argocd-agent-ca, which is none of the CAs in this Secret (caData)"},
		"no certificate":  {with(func(_, tls map[string]any) { delete(tls, "certData") }), "it has no client certificate (certData)"},
		"bad certificate": {with(func(_, tls map[string]any) { tls["certData"] = []byte("nonsense") }), "its client certificate (certData) cannot be read"},
		"another key":     {with(func(_, tls map[string]any) { tls["keyData"] = strangers.PEM().Key }), "its client certificate: key pair: tls: private key does not match public key"},
		"stranger":        {certificate(callerPair(t, strangers, "berlin", pki.Validity{})), "its client certificate: it was issued by CN=strangers"},
		"another agent":   {certificate(callerPair(t, a.ca(t), "paris", pki.Validity{})), "it is that of a caller of agent paris: replace it with: argocd-agentctl agent create berlin --upsert"},
		"the agent's own": {certificate(clientPair(t, a.ca(t), "berlin", pki.Validity{})),
			"its common name berlin is the agent's own identity: kubeproxy refuses it, and who reads it can pass for the agent: replace it with: argocd-agentctl agent create berlin --upsert"},
		"somebody else": {certificate(clientPair(t, a.ca(t), "paris", pki.Validity{})), "it has not the URI spiffe://argocd-agent/caller/berlin"},
		"expired": {certificate(callerPair(t, a.ca(t), "berlin", pki.Validity{NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour)})),
			"its client certificate: it expired at "},
		"soon expired": {certificate(callerPair(t, a.ca(t), "berlin", pki.Validity{NotBefore: now.AddDate(0, 0, -180), NotAfter: now.AddDate(0, 0, 9)})),
			"in 8 days: renew it"},
		"an unverifiable token": {with(func(config, _ map[string]any) { config["bearerToken"] = "x" }),
			"bearer token: it cannot be verified: Secret " + a.hub + "/argocd-agent-jwt on the hub (context hub): not found"},
	} {
		a.changes(t, "cluster-berlin", c.change)
		got := a.inspects(t, "berlin")
		require.Contains(t, strings.Join(got.Problems, "\n"), c.want, name)
		require.Contains(t, a.shows(t, "agent inspect berlin"), "PROBLEM", name)
		a.fails(t, "agent inspect berlin", "agent berlin: problems found: ")
		a.changes(t, "cluster-berlin", func(s *corev1.Secret) { s.Labels, s.Annotations, s.Data = good.Labels, good.Annotations, good.Data })
	}
	a.creates(t, "second", nil)
	a.changes(t, "second", func(s *corev1.Secret) {
		s.Labels = map[string]string{"argocd-agent.argoproj-labs.io/agent-name": "berlin"}
	})
	require.Contains(t, strings.Join(a.inspects(t, "berlin").Problems, "\n"), "/second on the hub (context hub) is about this agent too")
}

func TestAgentInspectChecksBearerToken(t *testing.T) {
	t.Parallel()
	a := ready(t)
	a.does(t, "jwt create-key --key-algorithm ecdsa-p256")
	keys, err := token.ParseKeys(a.secret(t, "argocd-agent-jwt").Data["jwt.key"])
	require.NoError(t, err)
	show := func(agent string) agentReport {
		raw, err := keys.Issue(agent, time.Hour)
		require.NoError(t, err)
		a.changes(t, "cluster-berlin", access(t, func(config, _ map[string]any) { config["bearerToken"] = raw }))
		require.NotContains(t, a.shows(t, "agent inspect berlin -o yaml"), raw)
		return a.inspects(t, "berlin")
	}
	good := show("berlin")
	require.Empty(t, good.Problems)
	require.Equal(t, "berlin", good.Token.Agent)
	require.WithinDuration(t, time.Now().Add(time.Hour), good.Token.NotAfter, time.Minute)
	require.Contains(t, a.shows(t, "agent inspect berlin"), "bearer token")
	require.Contains(t, strings.Join(show("paris").Problems, "\n"), "bearer token: it is for agent paris")
	a.does(t, "jwt create-key --key-algorithm ecdsa-p256 --upsert")
	require.Contains(t, strings.Join(show("berlin").Problems, "\n"), "it was not signed by a key that is known here")
	a.changes(t, "argocd-agent-jwt", func(s *corev1.Secret) { s.Data["jwt.key"] = []byte("nonsense") })
	require.Contains(t, strings.Join(show("berlin").Problems, "\n"), "no key in PEM form")
}

func TestAgentInspectChecksSpokeSecrets(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace("berlin")))
	a.does(t, "pki init", "agent create berlin")
	bare := a.inspects(t, "berlin --agent-context spoke-b")
	require.Len(t, bare.Problems, 2, bare.Problems)
	require.Contains(t, bare.Problems[0], "create it with: argocd-agentctl pki issue agent berlin")
	require.Contains(t, bare.Problems[1], "create it with: argocd-agentctl pki propagate")
	a.does(t, "pki issue agent paris --agent-context spoke-b")
	wrong := a.inspects(t, "berlin --agent-context spoke-b")
	require.Len(t, wrong.Problems, 1, wrong.Problems)
	require.Contains(t, wrong.Problems[0], `its common name is "paris"`)
	require.Equal(t, "CN=paris", wrong.Spoke.Certificate.Subject)
	require.Equal(t, "CN=argocd-agent-ca", wrong.Spoke.CAs[0].Subject)
	require.Contains(t, a.shows(t, "agent inspect berlin --agent-context spoke-b"), "the agent's client certificate for the principal:\n  subject  CN=paris")
}

// meshedAgent is a Deployment of an agent whose identity is of the SPIFFE Workload API.
const meshedAgent = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: argocd-agent-agent}
spec:
  replicas: 0
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - name: agent
        image: agent
        args: [--spiffe-endpoint-socket, "unix:///run/spire/sockets/agent.sock"]
`

// Who has no certificate of argocd-agentctl's does not need one, and one that was left behind is nobody's matter.
func TestAgentWithAnIdentityFromElsewhereHasNoProblem(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace("berlin")))
	a.does(t, "pki init", "agent create berlin", "pki issue agent paris --agent-context spoke-b")
	require.NoError(t, shared.Spoke("b").ApplyYAML(t.Context(), []byte(meshedAgent), a.spoke))
	require.Empty(t, a.inspects(t, "berlin --agent-context spoke-b").Problems)
	const from = "the SPIFFE Workload API at unix:///run/spire/sockets/agent.sock"
	require.Contains(t, a.shows(t, "agent inspect berlin --agent-context spoke-b"), "from "+from)
	for _, command := range []string{"doctor berlin --agent-context spoke-b", "doctor berlin --agent-context spoke-b --side spoke"} {
		walked, _ := a.try(t, command) // nothing runs here
		require.Contains(t, walked.output, "skipped  certificates of the agent on its cluster: the agent has its identity from "+from)
	}
	looked, _ := a.try(t, "validate agent berlin --agent-context spoke-b")
	require.Contains(t, looked.output, "skipped  certificate of agent berlin: the agent has its identity from "+from)

	hub := newAdmin(t) // without a CA
	looked, _ = hub.try(t, "validate principal")
	require.Regexp(t, `failed +CA certificate `, looked.output)
	meshed := strings.ReplaceAll(meshedAgent, "argocd-agent-agent", "argocd-agent-principal")
	require.NoError(t, shared.Hub.ApplyYAML(t.Context(), []byte(meshed), hub.hub))
	looked, _ = hub.try(t, "validate principal")
	require.Regexp(t, `skipped +CA certificate .*not found, and the principal has its identity from `+from, looked.output)
	require.Regexp(t, `skipped +certificate \(\S+/argocd-agent-principal-tls\)`, looked.output)
}

// No object on the hub says which agents are connected. Whoever takes one that is away for connected looks in the wrong place.
func TestAgentThatIsAwayIsShownAsAway(t *testing.T) {
	t.Parallel()
	s := newSite(t, "absent", lab.AgentOptions{}).connected(t)
	a := newAdmin(t)
	a.does(t, "pki init", "pki issue resource-proxy", "agent create "+s.name)
	require.Equal(t, "unknown", a.inspects(t, s.name).Connection.State)
	require.Contains(t, a.does(t, "agent list").warnings, "not known which agents are connected: there is no Service "+a.hub+"/argocd-agent-principal-metrics")
	require.Contains(t, a.does(t, "agent list --principal-metrics http://127.0.0.1:1").warnings, "not known which agents are connected: ")

	asked := s.name + " --principal-metrics " + strings.TrimSuffix(shared.Principal.MetricsURL, "/metrics")
	connected := a.inspects(t, asked)
	require.Equal(t, "connected", connected.Connection.State)
	require.Empty(t, connected.Problems)
	mark := shared.Principal.Mark()
	stopped(t, s.agent.Stop)
	saysNow(t, shared.Principal, mark, "An agent disconnected", s.name)
	away := a.inspects(t, asked)
	require.Equal(t, "away", away.Connection.State)
	require.True(t, away.Connection.Since.After(connected.Connection.Since))
	require.Contains(t, strings.Join(away.Problems, " "), "it has not been connected since "+away.Connection.Since.Format(time.RFC3339))
	a.fails(t, "agent inspect "+asked, "problems found: 1")
	require.Regexp(t, `(?m)^`+s.name+` .* away since \d{4}-\S+Z `, a.does(t, "agent list --principal-metrics "+strings.Fields(asked)[2]).output)
}

func TestAgentListFiltersByLabels(t *testing.T) {
	t.Parallel()
	a := ready(t)
	a.does(t, "agent create tokyo --label region=asia", "agent create osaka --label region=asia,tier=web")
	names := func(arguments string) (names []string) {
		for _, one := range decoded[[]agentReport](t, a, "agent list "+arguments) {
			names = append(names, one.Name)
		}
		return names
	}
	require.Equal(t, []string{"berlin", "osaka", "tokyo"}, names(""))
	require.Equal(t, []string{"osaka", "tokyo"}, names("-l region=asia"))
	require.Equal(t, []string{"osaka"}, names("--selector region=asia,tier!=db,tier"))
	require.Equal(t, []string{"berlin"}, names("--selector !region"))
	lines := strings.Split(a.does(t, "agent list").output, "\n")
	require.Regexp(t, `^NAME +SERVER +LABELS +CONNECTION +CERTIFICATE UNTIL +PROBLEMS$`, lines[0])
	require.Regexp(t, `^osaka +https://argocd-agent-resource-proxy:9090\?agentName=osaka +region=asia,tier=web +unknown +\d{4}-\S+Z +1$`, lines[2])
	var listed []agentReport
	require.NoError(t, yaml.Unmarshal([]byte(a.does(t, "agent list -o yaml").output), &listed))
	require.Len(t, listed, 3)
	require.Equal(t, map[string]string{"region": "asia", "tier": "web"}, listed[1].Labels)
	require.Contains(t, listed[1].Problems[0], "the hub has no namespace osaka")
}

func TestPKIInspectReportsProblems(t *testing.T) {
	t.Parallel()
	a := ready(t)
	good := decoded[pkiReport](t, a, "pki inspect")
	require.Equal(t, a.hub+"/argocd-agent-ca", good.Secret)
	require.True(t, good.PrivateKey)
	require.Empty(t, good.Problems)
	require.Len(t, good.Certificates, 4)
	for _, one := range good.Certificates {
		require.Empty(t, one.Problems, one.Secret)
	}
	a.does(t, "pki issue redis-proxy")
	old := serverPair(t, a.ca(t), pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	a.changes(t, "argocd-agent-principal-tls", func(s *corev1.Secret) { s.Data["tls.crt"], s.Data["tls.key"] = old.Certificate, old.Key })
	a.changes(t, "argocd-agent-kubeproxy-tls", func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("nonsense") })
	side := core(shared.Hub, "secrets", a.hub, "argocd-agent-redisproxy-tls")
	side.delete(t)
	found := make(map[string]string)
	for _, one := range decoded[pkiReport](t, a, "pki inspect").Certificates {
		found[strings.TrimPrefix(one.Secret, a.hub+"/")] = strings.Join(one.Problems, "\n")
	}
	require.Contains(t, found["argocd-agent-principal-tls"], "it expired at ")
	require.Contains(t, found["argocd-agent-kubeproxy-tls"], "it cannot be used: ")
	require.Contains(t, found["argocd-agent-redisproxy-tls"], "not found: create it with: argocd-agentctl pki issue component redisproxy")
	require.Empty(t, found["argocd-agent-resource-proxy-tls"])
	require.Contains(t, found, "argocd-redis-proxy-tls", "which is there")
	text := a.shows(t, "pki inspect")
	require.Contains(t, text, "PROBLEM  it expired at ")
	require.Contains(t, a.shows(t, "pki inspect -o yaml"), "privateKey: true")
}

// Certificates may come from elsewhere, such as cert-manager.
func TestAgentCreateUsesCertificatesOfAnotherCA(t *testing.T) {
	t.Parallel()
	a := newAdmin(t)
	require.NoError(t, shared.Hub.Apply(t.Context(), namespace("berlin")))
	elsewhere := newCA(t, "elsewhere", pki.Validity{})
	pair := callerPair(t, elsewhere, "berlin", pki.Validity{})
	data := map[string][]byte{"tls.crt": pair.Certificate, "tls.key": pair.Key, "ca.crt": elsewhere.PEM().Certificate}
	a.creates(t, "berlin-principal", data)
	command := "agent create berlin --tls-from-secret berlin-principal --ca-from-secret " + a.hub + "/berlin-principal"
	require.Empty(t, a.does(t, command).warnings, "no CA is needed on the hub")
	got := a.inspects(t, "berlin")
	require.Empty(t, got.Problems)
	require.Equal(t, "CN=elsewhere", got.Certificate.Issuer)
	require.Contains(t, a.does(t, command).output, "unchanged")

	renewed := callerPair(t, elsewhere, "berlin", pki.Validity{})
	a.changes(t, "berlin-principal", func(s *corev1.Secret) { s.Data["tls.crt"], s.Data["tls.key"] = renewed.Certificate, renewed.Key })
	a.fails(t, command, "its certificates are not those of Secret "+a.hub+"/berlin-principal")
	a.does(t, command+" --upsert")
	require.NotEqual(t, got.Certificate.SHA256, a.inspects(t, "berlin").Certificate.SHA256)
	a.changes(t, "berlin-principal", func(s *corev1.Secret) { s.Data["tls.key"] = pair.Key })
	a.fails(t, command, "Secret "+a.hub+"/berlin-principal on the hub (context hub): key pair: tls: private key does not match public key")
	a.changes(t, "berlin-principal", func(s *corev1.Secret) { s.Data["tls.key"], s.Data["ca.crt"] = renewed.Key, nil })
	a.fails(t, command, "is not a CA, and it has no key ca.crt")
}

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	settingstest.Check(t, settingstest.Program{
		Declare:  func(set *settings.Set) { new(agentSettings).Declare(set) },
		Required: []string{"--server-address=hub"},
		Flags: map[string]settingstest.Flag{
			"spiffe-endpoint-socket":     {Want: "", Bad: []string{"agent.sock", "http://x"}},
			"principal-spiffe-id":        {Want: "", Bad: []string{"hub", "spiffe://HUB/x"}, Good: []string{"spiffe://hub.test/ns/argocd/sa/principal"}},
			"kubeconfig":                 {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"namespace":                  {Bad: []string{"", "Argo", "a.b", "-a"}},
			"metrics-host":               {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"healthz-host":               {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"metrics-tls-cert":           {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-tls-key":            {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-client-ca-path":     {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-port":               {Want: "want", Bad: []string{"-1", "65536", "http", "1.5"}},
			"healthz-port":               {Want: "want", Bad: []string{"-1", "65536", "http"}},
			"pprof-port":                 {Want: "want", Bad: []string{"-1", "65536", "yes"}},
			"log-level":                  {Want: "want [component=]level", Bad: []string{"loud", "=info", "sync="}},
			"log-format":                 {Want: "want one of text, json", Bad: []string{"xml", "JSON"}},
			"tls-secret-name":            {Bad: []string{"", "a b", "A"}},
			"tls-min-version":            {Want: "use tls1.2 or tls1.3", Bad: []string{"1.2", "ssl3", "tls1.1"}},
			"tls-max-version":            {Want: "use tls1.2 or tls1.3", Bad: []string{"1.2", "tls1.4", "tls1.1"}},
			"tls-ciphersuites":           {Want: "want one of TLS_AES_128_GCM_SHA256", Bad: []string{"ROT13", "TLS_AES_128_GCM_SHA256,ROT13"}},
			"compare-interval":           {Want: "want at least 1s", Bad: []string{"1ns", "999ms", "0", "-1s"}, Good: []string{"1s", "5m"}},
			"agent-mode":                 {Want: "want one of managed, autonomous", Bad: []string{"both", "Managed"}},
			"allowed-namespaces":         {Want: "want globs or /regular expressions/", Bad: []string{"[", "a,/(/"}},
			"label-selector":             {Want: "want a label selector", Bad: []string{"a=b=c", "in (", "!"}},
			"adoption-policy":            {Want: "want one of always, never", Bad: []string{"sometimes"}},
			"source-uid-mismatch-policy": {Want: "want one of recreate, upsert", Bad: []string{"delete"}},
			"on-application-recreate":    {Want: "want one of ignore, clear-status, resync", Bad: []string{"sync"}},
			"server-address":             {Want: "want", Bad: []string{"", "https://hub", "hub:8443", "hub/path", "a b"}},
			"server-port":                {Want: "want", Bad: []string{"0", "65536", "https"}},
			"creds":                      {Want: "want mtls:any, header:any or jwt-svid:<audience>", Bad: []string{"userpass:/etc/creds", "mtls", "jwt-svid:"}},
			"root-ca-secret-name":        {Bad: []string{"", "a/b"}},
			"keep-alive-ping-interval":   {Want: "want at least 10s, or 0 for never", Bad: []string{"1ns", "9s", "-1s"}, Good: []string{"0", "10s", "1m"}},
			"heartbeat-interval":         {Want: "want at least 1s, or 0 for never", Bad: []string{"1ns", "999ms", "-1s"}, Good: []string{"0", "1s", "1m"}},
			"enrollment-port":            {Want: "want", Bad: []string{"0", "65536"}},
			"enrollment-token":           {Want: "copy all of what", Bad: []string{"berlin", "berlin.abc", ".AAAA"}},
			"cluster-labels":             {Want: "", Bad: []string{"team", "a b=c", "team=x y", "argocd.argoproj.io/secret-type=cluster", "x.k8s.io/y=z"}, Good: []string{"team=a,example.com/env=b"}},
			"cluster-annotations":        {Want: "", Bad: []string{"team", "a b=c", "argocd.argoproj.io/skip-reconcile=false", "managed-by=me"}, Good: []string{"owner=Jo Doe"}},
			"deletion-guard-floor":       {Want: "want", Bad: []string{"-1", "few"}, Good: []string{"0", "1"}},
			"deletion-guard-share":       {Want: "want", Bad: []string{"-1", "101", "20%"}, Good: []string{"0", "100"}},
			"policy-configmap-name":      {Bad: []string{"", "A", "a/b"}},
			"redis-addr":                 {Want: "want a host and a port", Bad: []string{"argocd-redis", ":6379", "redis://a:1"}},
			"redis-tls-ca-secret-name":   {Bad: []string{"", "a b"}},
		},
		Any: []string{
			"kubecontext", "tls-client-cert", "tls-client-key", "root-ca-path", "redis-username", "redis-password",
			"redis-creds-dir-path", "redis-key-prefix", "redis-tls-ca-path",
		},
		NoVariable: []string{"kubeconfig", "kubecontext"},
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	settingstest.Help(t, newCommand(nil))
}

// All problems are reported at once: an operator who corrects one at a time restarts as often.
func TestAllProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	err := settingstest.Parse(new(agentSettings).Declare, nil, "--creds=userpass:x", "--tls-min-version=tls1.9", "--tls-max-version=ssl3",
		"--tls-ciphersuites=ROT13", "--log-level=foo=bar,baz", "--tls-client-cert=x", "--compare-interval=1ns")
	for _, want := range []string{
		"--creds", `"tls1.9"`, `"ssl3"`, "ROT13", "--log-level", "--tls-client-cert or ARGOCD_AGENT_TLS_CLIENT_CERT_PATH, --tls-client-key", "set both or neither",
		"--compare-interval",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestTLSVersionsThatContradict(t *testing.T) {
	t.Parallel()
	err := settingstest.Parse(new(agentSettings).Declare, nil, "--log-format=xml", "--tls-min-version=tls1.3", "--tls-max-version=tls1.2")
	require.ErrorContains(t, err, "--log-format")
	require.ErrorContains(t, err, "raise the maximum or lower the minimum")
}

func TestRedisCredentialsAreGivenOneWay(t *testing.T) {
	t.Parallel()
	err := settingstest.Parse(new(agentSettings).Declare, nil, "--server-address=hub", "--redis-creds-dir-path=/creds", "--redis-password=x")
	require.ErrorContains(t, err, "set the folder or the two others")
}

func TestNamespacesNeedDestinationBasedMapping(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--create-namespace", "--allowed-namespaces=team-*"} {
		err := settingstest.Parse(new(agentSettings).Declare, nil, "--server-address=hub", flag)
		require.ErrorContains(t, err, "only with --destination-based-mapping")
		require.NoError(t, settingstest.Parse(new(agentSettings).Declare, nil, "--server-address=hub", flag, "--destination-based-mapping"))
	}
}

func TestIntentSourcesAreAnAutonomousAgentsToRefuse(t *testing.T) {
	t.Parallel()
	err := settingstest.Parse(new(agentSettings).Declare, nil, "--server-address=hub", "--refuse-intent-sources")
	require.ErrorContains(t, err, "only with --agent-mode=autonomous")
	require.NoError(t, settingstest.Parse(new(agentSettings).Declare, nil, "--server-address=hub", "--refuse-intent-sources", "--agent-mode=autonomous"))
}

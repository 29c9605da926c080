package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	settingstest.Check(t, settingstest.Program{
		Declare: func(set *settings.Set) { new(principalSettings).Declare(set) },
		Flags: map[string]settingstest.Flag{
			"spiffe-endpoint-socket":                {Want: "", Bad: []string{"agent.sock", "http://x"}, Good: []string{"unix:///run/spire/agent.sock"}},
			"peers":                                 {Want: "want service:NAME, dns:HOST:PORT, or HOST:PORT", Bad: []string{"hub", "dns:hub", "a:1,b", "a:0"}, Good: []string{"service:principals", "dns:hub:8443", "a:1,b:2"}},
			"trusted-proxies":                       {Want: "SPIFFE ID", Bad: []string{"hub", "spiffe://hub.test/{agent}"}},
			"xfcc-hop":                              {Want: "want", Bad: []string{"-1", "last"}},
			"trust-domain":                          {Bad: []string{"Hub", "spiffe://hub", "a/b"}, Good: []string{"hub.test"}},
			"kubeconfig":                            {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"namespace":                             {Bad: []string{"", "Argo", "a.b", "-a"}},
			"metrics-host":                          {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"healthz-host":                          {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"metrics-tls-cert":                      {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-tls-key":                       {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-client-ca-path":                {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-port":                          {Want: "want", Bad: []string{"-1", "65536", "http", "1.5"}},
			"healthz-port":                          {Want: "want", Bad: []string{"-1", "65536", "http"}},
			"pprof-port":                            {Want: "want", Bad: []string{"-1", "65536", "yes"}},
			"log-level":                             {Want: "want [component=]level", Bad: []string{"loud", "=info", "sync="}},
			"log-format":                            {Want: "want one of text, json", Bad: []string{"xml", "JSON"}},
			"tls-secret-name":                       {Bad: []string{"", "a b", "A"}},
			"tls-min-version":                       {Want: "use tls1.2 or tls1.3", Bad: []string{"1.2", "ssl3", "tls1.1"}},
			"tls-max-version":                       {Want: "use tls1.2 or tls1.3", Bad: []string{"1.2", "tls1.4", "tls1.1"}},
			"tls-ciphersuites":                      {Want: "want one of TLS_AES_128_GCM_SHA256", Bad: []string{"ROT13", "TLS_AES_128_GCM_SHA256,ROT13"}},
			"compare-interval":                      {Want: "want at least 1s", Bad: []string{"1ns", "999ms", "0", "-1s"}, Good: []string{"1s", "5m"}},
			"drain-timeout":                         {Want: "want at least 1s", Bad: []string{"1ns", "999ms", "-1s"}, Good: []string{"0", "1s", "5m"}},
			"listen-host":                           {Want: "want a host name or an IP address, without a scheme and without a port", Bad: []string{"0.0.0.0:8443", "http://hub"}},
			"listen-port":                           {Want: "want", Bad: []string{"0", "-1", "65536", "https"}},
			"allowed-namespaces":                    {Want: "want globs or /regular expressions/", Bad: []string{"[", "a,/(/"}},
			"label-selector":                        {Want: "want a label selector", Bad: []string{"a=b=c", "in (", "!"}},
			"namespace-create-pattern":              {Want: "want a regular expression", Bad: []string{"("}},
			"namespace-create-labels":               {Want: "want", Bad: []string{"team", "a b=c", "team=x y"}},
			"mirror-labels":                         {Want: "want globs of keys", Bad: []string{"["}, Good: []string{"team,example.com/*"}},
			"mirror-annotations":                    {Want: "want globs of keys", Bad: []string{"["}},
			"auth":                                  {Want: "use for example", Bad: []string{"userpass:/etc/users", "header:x", "mtls:", "mtls:(", "mtls:subject:CN=.*", "oidc"}},
			"hub-components":                        {Want: "NAME=kube or NAME=redis", Bad: []string{"argocd-agent-kubeproxy", "a=kube,b=shell", "=redis"}, Good: []string{"spiffe://example.org/kubeproxy=kube"}},
			"tls-ca-secret-name":                    {Bad: []string{"", "a/b"}},
			"keepalive-min-interval":                {Want: "want", Bad: []string{"-1s", "5"}},
			"signer":                                {Want: "want one of", Bad: []string{"vault"}, Good: []string{"ca-secret"}},
			"signer-issuer":                         {Want: "want an issuer of cert-manager", Bad: []string{"a/b/c", "/agents", "Issuer/", "A B"}},
			"signer-spire-server":                   {Want: "want a host and a port", Bad: []string{"spire", "https://spire:8081"}},
			"signer-ca-namespace":                   {Bad: []string{"A", "a/b"}},
			"certificate-lifetime":                  {Want: "want at least 30s", Bad: []string{"29s", "0", "-1h"}},
			"enrollment-port":                       {Want: "want", Bad: []string{"-1", "65536"}},
			"deletion-guard-floor":                  {Want: "want", Bad: []string{"-1", "few"}, Good: []string{"0", "1"}},
			"deletion-guard-share":                  {Want: "want", Bad: []string{"-1", "101", "20%"}, Good: []string{"0", "100"}},
			"metrics-agents":                        {Want: "want", Bad: []string{"-1", "many"}},
			"max-connections":                       {Want: "want", Bad: []string{"0", "-1", "many"}},
			"max-objects-per-agent":                 {Want: "want", Bad: []string{"-1", "many"}},
			"sessions-per-second":                   {Want: "want", Bad: []string{"-1", "fast"}, Good: []string{"0"}},
			"agent-changes-per-second":              {Want: "want", Bad: []string{"-1", "fast"}},
			"resource-proxy-address":                {Want: "want a host and a port", Bad: []string{"", "proxy", "https://proxy:9090"}},
			"self-registration-client-cert-secret":  {Bad: []string{"a/b", "A"}},
			"self-registration-modes":               {Want: "want one of managed, autonomous", Bad: []string{"both"}, Good: []string{"autonomous", "managed,autonomous"}},
			"self-registration-allowed-labels":      {Want: "want globs of keys", Bad: []string{"["}},
			"self-registration-allowed-annotations": {Want: "want globs of keys", Bad: []string{"["}},
			"max-self-registered-clusters":          {Want: "want", Bad: []string{"-1", "many"}},
		},
		Any:        []string{"jwt-svid-audience", "pod-name", "listen-socket", "kubecontext", "tls-cert", "tls-key", "root-ca-path"},
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
	err := settingstest.Parse(new(principalSettings).Declare, nil, "--auth=mtls:(", "--tls-min-version=tls1.9", "--tls-max-version=ssl3",
		"--tls-ciphersuites=ROT13", "--log-level=foo=bar,baz", "--tls-cert=x", "--compare-interval=1ns")
	for _, want := range []string{
		"--auth", `"tls1.9"`, `"ssl3"`, "ROT13", "--log-level", "--tls-cert or ARGOCD_PRINCIPAL_TLS_SERVER_CERT_PATH, --tls-key", "set both or neither",
		"--compare-interval",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestTLSVersionsThatContradict(t *testing.T) {
	t.Parallel()
	err := settingstest.Parse(new(principalSettings).Declare, nil, "--log-format=xml", "--tls-min-version=tls1.3", "--tls-max-version=tls1.2")
	require.ErrorContains(t, err, "--log-format")
	require.ErrorContains(t, err, "raise the maximum or lower the minimum")
}

// Certificates that nobody could use, or that nothing issues, are not offered.
func TestSignersThatCannotWork(t *testing.T) {
	t.Parallel()
	const socket, server = "--spiffe-endpoint-socket=unix:///run/spire/agent.sock", "--signer-spire-server=spire:8081"
	const spire, auth = "--signer=spire", "--auth=spiffe://{agent}.test/agent,spiffe://hub.test/agent/{agent}"
	for want, args := range map[string][]string{
		"":                                 {"--signer=ca-secret", "--enrollment-port=8444"},
		" ":                                {spire, server, socket, auth, "--enrollment-port=8444"},
		"set --signer too":                 {"--enrollment-port=8444"},
		"an issuer is for --signer":        {"--signer=ca-secret", "--signer-issuer=agents"},
		"which needs one: set both or":     {"--signer=cert-manager"},
		"name agents by their common":      {"--signer=ca-secret", "--auth=mtls:uri:^spiffe://hub.test/([^/]+)$"},
		"set --auth to mtls:subject, or":   {"--signer=ca-secret", socket, auth},
		"the sidecar has the certifica":    {"--signer=ca-secret", "--auth=spiffe:", "--insecure-plaintext"},
		"set one of the two":               {spire, server, socket, auth, "--insecure-plaintext"},
		"a SPIRE server is for --signer":   {"--signer=ca-secret", server},
		"--signer=spire, which needs one":  {spire, socket, auth},
		"set --spiffe-endpoint-socket, an": {spire, server, auth},
		"and no --tls-cert, --tls-key and": {spire, server, socket, auth, "--tls-cert=x", "--tls-key=y"},
		"and --root-ca-path":               {spire, server, socket, auth, "--root-ca-path=x"},
		"such as spiffe://hub.example/a":   {spire, server, socket},
		"with {agent} in the path":         {spire, server, socket, "--auth=spiffe://{agent}.test/agent"},
		"a form of them with {agent}":      {spire, server, socket, "--auth=spiffe:"},
		"of the SPIRE server's trust":      {spire, server, socket, "--auth=mtls:uri:^spiffe://hub.test/([^/]+)$"},
		"set --trust-domain":               {spire, server, socket, "--auth=spiffe://{trustDomain}/agent/{agent}"},
	} {
		err := settingstest.Parse(new(principalSettings).Declare, nil, args...)
		if strings.TrimSpace(want) == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// What makes a cluster Secret, and what asks for one, contradict each other: to delete it would shut nobody out.
func TestRegistrationsThatCannotWork(t *testing.T) {
	t.Parallel()
	const enabled = "--enable-self-cluster-registration"
	for want, args := range map[string][]string{
		"":                                  {enabled, "--self-registration-client-cert-secret=shared", "--self-registration-allowed-labels=team"},
		"argocd-agentctl agent block shuts": {enabled, "--require-cluster-secret"},
		"set --enable-self-cluster-regist":  {"--self-registration-client-cert-secret=shared"},
		"agents do not register themselves": {"--self-registration-allowed-annotations=*"},
	} {
		err := settingstest.Parse(new(principalSettings).Declare, nil, args...)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
}

// A header that anybody could have written counts for nothing.
func TestProxiesThatProveNothing(t *testing.T) {
	t.Parallel()
	const auth, gateway = "--auth=spiffe://hub.test/agent/{agent}", "--trusted-proxies=spiffe://hub.test/gateway"
	for want, args := range map[string][]string{
		"":                                  {auth, "--insecure-plaintext", "--listen-socket=/run/principal.sock"},
		"a Unix socket is for proxies":      {auth, "--listen-socket=/run/principal.sock"},
		"nobody is believed":                {auth, "--xfcc-hop=1"},
		"counts only if a trusted proxy":    {auth, "--xfcc-hop=2", "--insecure-plaintext"},
		"without TLS no proxy can prove":    {auth, "--insecure-plaintext", gateway},
		"is not known by mtls":              {"--insecure-plaintext"},
		"set --insecure-plaintext, or":      {"--auth=header:x-forwarded-client-cert:([^/]+)$"},
		"it has {trustDomain}, and there":   {"--auth=spiffe://{trustDomain}/agent/{agent}"},
		"--trusted-proxies or ARGOCD_PRINC": {auth, "--trusted-proxies=hub"},
	} {
		err := settingstest.Parse(new(principalSettings).Declare, nil, args...)
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, settingstest.Parse(new(principalSettings).Declare, nil, auth, "--insecure-plaintext", "--xfcc-hop=2", gateway))
}

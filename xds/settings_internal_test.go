package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/xds/resources"
)

// required are the flags without which nothing runs.
func required() []string { return []string{"--tls-cert=a", "--tls-key=b", "--root-ca-path=c"} }

func TestFlags(t *testing.T) {
	t.Parallel()
	settingstest.Check(t, settingstest.Program{
		Declare:  func(set *settings.Set) { new(xdsSettings).Declare(set) },
		Required: required(),
		Flags: map[string]settingstest.Flag{
			"spiffe-endpoint-socket": {Want: "", Bad: []string{"agent.sock", "http://x"}},
			"principal-spiffe-id":    {Want: "", Bad: []string{"hub", "spiffe://HUB/x"}, Good: []string{"spiffe://hub.test/ns/argocd/sa/principal"}},
			"trusted-proxies":        {Want: "SPIFFE ID", Bad: []string{"hub", "spiffe://hub.test/{agent}"}},
			"xfcc-hop":               {Want: "want", Bad: []string{"-1", "last"}},
			"listen-host":            {Want: "want a host name", Bad: []string{"0.0.0.0:9090", "https://hub"}},
			"listen-port":            {Want: "want", Bad: []string{"0", "65536", "https"}},
			"metrics-host":           {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"healthz-host":           {Want: "want a host name or an IP address", Bad: []string{"0.0.0.0:80", "http://hub"}},
			"metrics-tls-cert":       {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-tls-key":        {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-client-ca-path": {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"metrics-port":           {Want: "want", Bad: []string{"-1", "http"}},
			"healthz-port":           {Want: "want", Bad: []string{"-1", "1.5"}},
			"pprof-port":             {Want: "want", Bad: []string{"-1", "yes"}},
			"log-level":              {Want: "want [component=]level", Bad: []string{"loud", "=info"}},
			"log-format":             {Want: "want one of text, json", Bad: []string{"xml"}},
			"tls-cert":               {Want: "want a value", Bad: []string{""}},
			"tls-key":                {Want: "want a value", Bad: []string{""}},
			"root-ca-path":           {Want: "want a value", Bad: []string{""}},
			"tls-min-version":        {Want: "use tls1.2 or tls1.3", Bad: []string{"1.2", "tls1.1"}},
			"tls-max-version":        {Want: "use tls1.2 or tls1.3", Bad: []string{"ssl3"}},
			"tls-ciphersuites":       {Want: "want one of", Bad: []string{"ROT13"}},
			"clients":                {Want: "want", Bad: []string{"kubeproxy,spiffe://hub.test/redisproxy", ""}, Good: []string{"spiffe://hub.test/a,spiffe://hub.test/b"}},
			"principals": {
				Want: "", Bad: []string{"", "hub", "dns:hub", "service:", "hub:0"},
				Good: []string{"service:peers", "dns:peers:8443", "192.0.2.1:8443,192.0.2.2:8443"},
			},
			"principal-name": {Want: "want", Bad: []string{"", "hub:8443"}},
			"namespace":      {Want: "", Bad: []string{"", "Argo CD"}},
			"kubeconfig":     {Want: "want a file that can be read", Bad: []string{"/no/such/file"}},
			"agent-domain":   {Want: "", Bad: []string{"", "Agents"}},
			"envoy-tls":      {Want: "want secrets, sds:CLUSTER or none", Bad: []string{"", "sds:", "tls"}, Good: []string{"secrets", "sds:spire", "none"}},
			"route-lookup-service": {
				Want: "want passthrough:///HOST:PORT", Bad: []string{"nosuch:///hub:8443", "hub:8443", "dns:///"}, Good: []string{"", "dns:///hub:8443", "passthrough:///192.0.2.1:8443"},
			},
			"max-unknown-hosts": {Want: "want", Bad: []string{"0", "many"}},
		},
		Any:        []string{"listen-socket", "kubecontext"},
		NoVariable: []string{"kubeconfig", "kubecontext"},
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	settingstest.Help(t, newCommand(nil))
}

// Who comes by a proxy, or by a SPIFFE ID, is known by that; common names and SPIFFE IDs do not mix.
func TestClientsAreKnownByOneField(t *testing.T) {
	t.Parallel()
	s := &xdsSettings{}
	require.ErrorContains(t, settingstest.Parse(s.Declare, nil, "--insecure-plaintext"), "who comes by a proxy is known by a SPIFFE ID")
	require.NoError(t, settingstest.Parse(s.Declare, nil, "--insecure-plaintext", "--clients=spiffe://hub.test/kubeproxy"))
	identify, err := s.identities()
	require.NoError(t, err)
	require.Empty(t, identify.Unmatched())
}

func TestEnvoyTLS(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]resources.TLS{
		"--envoy-tls=secrets":                               {Certificate: "argocd-agent-client", Roots: "argocd-agent-ca", Principal: "argocd-agent-principal"},
		"--envoy-tls=sds:spire":                             {SDS: "spire", Certificate: "default", Roots: "ALL", Principal: "argocd-agent-principal"},
		"--envoy-tls=none":                                  {},
		"--principal-spiffe-id=spiffe://hub.test/principal": {Certificate: "argocd-agent-client", Roots: "argocd-agent-ca", Principal: "spiffe://hub.test/principal"},
	} {
		s := &xdsSettings{}
		require.NoError(t, settingstest.Parse(s.Declare, nil, append(required(), flag)...))
		require.Equal(t, want, s.envoy(), flag)
	}
}

// Without principals nobody is served, since Envoy would forget which agents there are; and the program stops when its context ends.
func TestNobodyIsServedBeforePrincipalsAreKnown(t *testing.T) {
	t.Parallel()
	s := &xdsSettings{}
	require.NoError(t, settingstest.Parse(s.Declare, nil, append(required(), "--metrics-port=0", "--healthz-port=0", "--principals=127.0.0.1:1")...))
	ctx, stop := context.WithCancel(t.Context())
	log := &stopping{line: "Connection to peer failed; retrying", stop: stop}
	require.NoError(t, run(ctx, s, log))
	require.NotContains(t, log.text.String(), "Listening for xDS clients")
}

// stopping is a log that stops the program at a line.
type stopping struct {
	text bytes.Buffer
	line string
	stop context.CancelFunc
}

// Write is called by one handler, which has a lock.
func (s *stopping) Write(line []byte) (int, error) {
	if strings.Contains(string(line), s.line) {
		s.stop()
	}
	return s.text.Write(line)
}

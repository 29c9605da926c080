package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// required are the flags without which nothing runs.
func required() []string {
	return []string{
		"--tls-cert=a", "--tls-key=b", "--root-ca-path=c",
		"--principal-client-cert=d", "--principal-client-key=e", "--principal-ca-path=f",
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	settingstest.Check(t, settingstest.Program{
		Declare:  func(set *settings.Set) { new(proxySettings).Declare(set) },
		Required: required(),
		Flags: map[string]settingstest.Flag{
			"spiffe-endpoint-socket": {Want: "", Bad: []string{"agent.sock", "http://x"}},
			"principal-spiffe-id":    {Want: "", Bad: []string{"hub", "spiffe://HUB/x"}, Good: []string{"spiffe://hub.test/ns/argocd/sa/principal"}},
			"trusted-proxies":        {Want: "SPIFFE ID", Bad: []string{"hub", "spiffe://hub.test/{agent}"}, Good: []string{"spiffe://hub.test/ingress"}},
			"xfcc-hop":               {Want: "want", Bad: []string{"-1", "last"}},
			"max-connections":        {Want: "want", Bad: []string{"0", "-1", "many"}},
			"metrics-agents":         {Want: "want", Bad: []string{"-1", "many"}},
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
			"callers": {
				Bad:  []string{"spiffe://x/argocd", "https://x=*", "spiffe://x/{agent}=*", "spiffe://x/y={agent}", "spiffe://x/y=Berlin", "spiffe://x/y=", "argocd-server=token"},
				Good: []string{"spiffe://hub.test/ns/argocd/sa/argocd-server=*,spiffe://hub.test/x=berlin", "spiffe://{agent}.test/argocd={agent}", "spiffe://x/y=token"},
			},
			"max-response-size":        {Want: "want", Bad: []string{"-1", "much"}},
			"max-response-memory":      {Want: "want", Bad: []string{"-1", "much"}},
			"request-timeout":          {Want: "want", Bad: []string{"0", "5", "10ms"}},
			"principal-address":        {Want: "want", Bad: []string{"", "hub:8443", "dns:///", "dns://hub", "dns://a b/hub", "dns:///hub:8443", "unix:", "ftp:///hub"}, Good: []string{"dns:///hub", "dns://10.0.0.10:5353/hub", "dns://resolver/hub", "xds:///hub", "unix:/run/envoy.sock"}},
			"agent-domain":             {Want: "", Bad: []string{"Agents"}},
			"principal-port":           {Want: "want", Bad: []string{"0", "x"}},
			"principal-client-cert":    {Want: "want a value", Bad: []string{""}},
			"principal-client-key":     {Want: "want a value", Bad: []string{""}},
			"principal-ca-path":        {Want: "want a value", Bad: []string{""}},
			"keep-alive-ping-interval": {Want: "want at least 10s", Bad: []string{"1s"}},
		},
		Any: []string{"listen-socket", "jwt-key"},
	})
}

func TestHelp(t *testing.T) {
	t.Parallel()
	settingstest.Help(t, newCommand(nil))
}

// The program begins with nothing but its settings, logs what it waits for, and stops when its context ends.
func TestProgramRunsUntilContextEnds(t *testing.T) {
	t.Parallel()
	s := &proxySettings{}
	require.NoError(t, settingstest.Parse(s.Declare, nil, append(required(), "--metrics-port=0", "--healthz-port=0", "--listen-host=127.0.0.1", "--jwt-key="+t.TempDir())...))
	s.listenPort = 0 // any that is free
	log := &listening{heard: make(chan struct{}), line: "Listening for API requests"}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, log) }()
	select {
	case <-log.heard:
	case err := <-ended:
		require.NoError(t, err)
	}
	stop()
	require.NoError(t, <-ended)
	require.Contains(t, log.text.String(), "argocd-agentctl pki issue resource-proxy")
	require.Contains(t, log.text.String(), "argocd-agentctl jwt create-key")
}

// listening is a log that signals when the start is complete.
type listening struct {
	text  bytes.Buffer
	line  string
	seen  int
	heard chan struct{}
}

// Write is called by one handler, which has a lock.
func (l *listening) Write(line []byte) (int, error) {
	for _, part := range []string{l.line, "resource-proxy", "create-key"} {
		if strings.Contains(string(line), part) {
			if l.seen++; l.seen == 3 {
				close(l.heard)
			}
		}
	}
	return l.text.Write(line)
}

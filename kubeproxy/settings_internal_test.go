package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func nothing(string) (string, bool) { return "", false }

// required are the flags without which nothing runs.
func required() []string {
	return []string{
		"--tls-cert=a", "--tls-key=b", "--root-ca-path=c",
		"--principal-client-cert=d", "--principal-client-key=e", "--principal-ca-path=f",
	}
}

func TestEveryFlagWithABadValueSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for flag, c := range map[string]struct {
		variable, want string
		values         []string
	}{
		"listen-host":              {"ARGOCD_KUBEPROXY_LISTEN_HOST", "want a host name", []string{"0.0.0.0:9090", "https://hub"}},
		"listen-port":              {"ARGOCD_KUBEPROXY_LISTEN_PORT", "want", []string{"0", "65536", "https"}},
		"metrics-port":             {"ARGOCD_KUBEPROXY_METRICS_PORT", "want", []string{"-1", "http"}},
		"healthz-port":             {"ARGOCD_KUBEPROXY_HEALTH_CHECK_PORT", "want", []string{"-1", "1.5"}},
		"pprof-port":               {"ARGOCD_KUBEPROXY_PPROF_PORT", "want", []string{"-1", "yes"}},
		"log-level":                {"ARGOCD_KUBEPROXY_LOG_LEVEL", "want [component=]level", []string{"loud", "=info"}},
		"log-format":               {"ARGOCD_KUBEPROXY_LOG_FORMAT", "want one of text, json", []string{"xml"}},
		"tls-cert":                 {"ARGOCD_KUBEPROXY_TLS_SERVER_CERT_PATH", "want a value", []string{""}},
		"tls-key":                  {"ARGOCD_KUBEPROXY_TLS_SERVER_KEY_PATH", "want a value", []string{""}},
		"root-ca-path":             {"ARGOCD_KUBEPROXY_TLS_SERVER_ROOT_CA_PATH", "want a value", []string{""}},
		"tls-min-version":          {"ARGOCD_KUBEPROXY_TLS_MIN_VERSION", "use one of tls1.1", []string{"1.2"}},
		"tls-max-version":          {"ARGOCD_KUBEPROXY_TLS_MAX_VERSION", "use one of tls1.1", []string{"ssl3"}},
		"tls-ciphersuites":         {"ARGOCD_KUBEPROXY_TLS_CIPHERSUITES", "want one of", []string{"ROT13"}},
		"auth":                     {"ARGOCD_KUBEPROXY_AUTH", "use for example", []string{"header:x", "mtls:(", "oidc"}},
		"all-agents-callers":       {"ARGOCD_KUBEPROXY_ALL_AGENTS_CALLERS", "want a common name, or a SPIFFE ID", []string{"https://x", "a,spiffe:///x", "spiffe://"}},
		"request-timeout":          {"ARGOCD_KUBEPROXY_REQUEST_TIMEOUT", "want", []string{"0", "5", "10ms"}},
		"principal-address":        {"ARGOCD_KUBEPROXY_PRINCIPAL_ADDRESS", "want", []string{"", "hub:8443"}},
		"principal-port":           {"ARGOCD_KUBEPROXY_PRINCIPAL_PORT", "want", []string{"0", "x"}},
		"principal-client-cert":    {"ARGOCD_KUBEPROXY_PRINCIPAL_CLIENT_CERT_PATH", "want a value", []string{""}},
		"principal-client-key":     {"ARGOCD_KUBEPROXY_PRINCIPAL_CLIENT_KEY_PATH", "want a value", []string{""}},
		"principal-ca-path":        {"ARGOCD_KUBEPROXY_PRINCIPAL_ROOT_CA_PATH", "want a value", []string{""}},
		"keep-alive-ping-interval": {"ARGOCD_KUBEPROXY_KEEP_ALIVE_PING_INTERVAL", "want at least 10s", []string{"1s"}},
	} {
		for _, value := range c.values {
			_, err := readSettings(append(required(), "--"+flag+"="+value), nothing)
			require.ErrorContains(t, err, "--"+flag+" or "+c.variable)
			require.ErrorContains(t, err, c.want)
			if value == "" {
				continue
			}
			_, err = readSettings(required(), func(name string) (string, bool) { return value, name == c.variable })
			require.ErrorContains(t, err, "--"+flag+" or "+c.variable)
		}
	}
}

func TestEveryFlagHasAVariable(t *testing.T) {
	t.Parallel()
	s, err := readSettings(required(), nothing)
	require.NoError(t, err)
	require.Equal(t, time.Minute, s.timeout)
	require.Equal(t, 9090, s.listenPort)
	for _, line := range regexp.MustCompile(`(?m)^ +(-\w, )?--[^\n]+`).FindAllString(s.help, -1) {
		require.Contains(t, line, "[ARGOCD_KUBEPROXY_", line)
	}
	_, err = readSettings(nil, nothing)
	require.ErrorContains(t, err, "--principal-ca-path")
}

// The program begins with nothing but its settings, says what it waits for, and ends when it is told to.
func TestItRunsAndEnds(t *testing.T) {
	t.Parallel()
	s, err := readSettings(append(required(), "--metrics-port=0", "--healthz-port=0", "--listen-host=127.0.0.1", "--jwt-key="+t.TempDir()), nothing)
	require.NoError(t, err)
	s.listenPort = 0 // any that is free
	log := &listening{heard: make(chan struct{}), line: "Listen for callers"}
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

// listening is a log that tells when all has been said that a start says.
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

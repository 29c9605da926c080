package uplink_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	tunnelv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/tunnel/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/dnstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/uplink"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/relay/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parse resolves the settings of a program from its flags, and from variables without their prefix.
func parse(args []string, variables map[string]string) (*uplink.Settings, error) {
	s := &uplink.Settings{}
	environment := make(map[string]string)
	for name, value := range variables {
		environment["PROGRAM_"+name] = value
	}
	return s, settingstest.Parse(func(set *settings.Set) { s.Declare(set, "PROGRAM") }, environment, args...)
}

// files are those of a component that a principal accepts.
type files struct{ cert, key, ca string }

// write writes a component's certificate and the principal's CA to files.
func write(t *testing.T, issuer, trusted *pki.CA, name string) files {
	t.Helper()
	pair, err := issuer.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(t, err)
	folder := t.TempDir()
	f := files{filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"), filepath.Join(folder, "ca.crt")}
	for path, data := range map[string][]byte{f.cert: pair.Certificate, f.key: pair.Key, f.ca: trusted.PEM().Certificate} {
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	return f
}

// renew writes another certificate of the component.
func (f files) renew(t *testing.T, issuer *pki.CA, v pki.Validity) {
	t.Helper()
	pair, err := issuer.IssueClient(pki.ClientOptions{CommonName: relaytest.Component, Validity: v})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.cert, pair.Certificate, 0o600))
	require.NoError(t, os.WriteFile(f.key, pair.Key, 0o600))
}

// args are the flags of a component that reaches a principal by these files.
func (f files) args(t *testing.T, address string) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return []string{
		"--principal-address=" + host, "--principal-port=" + port,
		"--principal-client-cert=" + f.cert, "--principal-client-key=" + f.key, "--principal-ca-path=" + f.ca,
	}
}

// connect connects as the settings say, until the test is over.
func connect(t *testing.T, s *uplink.Settings) (*certs.Source, *uplink.Conn) {
	t.Helper()
	material, err := s.Certificates("component", slog.New(slog.DiscardHandler), certs.NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { relaytest.Check(t, material.Run(ctx)) })
	t.Cleanup(func() { cancel(); running.Wait() })
	require.NoError(t, material.Wait(t.Context()))
	principal, err := s.Connect(material)
	require.NoError(t, err)
	t.Cleanup(func() { relaytest.Check(t, principal.Close()) })
	return material, principal
}

// ask asks the principal which agents there are.
func ask(t *testing.T, principal *uplink.Conn) (*tunnelv1.DirectoryUpdate, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), relaytest.Timeout)
	defer cancel()
	stream, err := tunnelv1.NewRelayClient(principal).Watch(ctx, &tunnelv1.WatchRequest{})
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}

func TestConnectByFlagsAndByVariables(t *testing.T) {
	w := relaytest.Open(t)
	f := write(t, w.CA, w.CA, relaytest.Component)
	byFlags, err := parse(f.args(t, w.Address), nil)
	require.NoError(t, err)
	host, port, err := net.SplitHostPort(w.Address)
	require.NoError(t, err)
	byVariables, err := parse(nil, map[string]string{
		"PRINCIPAL_ADDRESS": host, "PRINCIPAL_PORT": port, "PRINCIPAL_CLIENT_CERT_PATH": f.cert, "PRINCIPAL_CLIENT_KEY_PATH": f.key,
		"PRINCIPAL_ROOT_CA_PATH": f.ca, "KEEP_ALIVE_PING_INTERVAL": "0",
	})
	require.NoError(t, err)
	for _, s := range []*uplink.Settings{byFlags, byVariables} {
		_, principal := connect(t, s)
		said, err := ask(t, principal)
		require.NoError(t, err)
		require.Len(t, said.GetAgents(), 2)
	}
}

// A DNS that does not answer for TXT records, and /etc/hosts that has the principal's name, must not hold up kubeproxy and redisproxy.
func TestComponentsLookForAddressesOnly(t *testing.T) {
	w := relaytest.Open(t)
	dns := dnstest.Start(t)
	_, port, err := net.SplitHostPort(w.Address)
	require.NoError(t, err)
	s, err := parse(write(t, w.CA, w.CA, relaytest.Component).args(t, "principal.test:"+port), nil)
	require.NoError(t, err)
	_, principal := connect(t, s)
	_, err = ask(t, principal)
	require.ErrorContains(t, err, "principal.test", "its certificate has no such name")
	dns.AddressesOnly(t)
}

// All that is missing or wrong is reported at once, by flags and variables.
func TestBadSettings(t *testing.T) {
	t.Parallel()
	_, err := parse(nil, nil)
	for _, flag := range []string{
		"--principal-client-cert or PROGRAM_PRINCIPAL_CLIENT_CERT_PATH", "--principal-client-key or PROGRAM_PRINCIPAL_CLIENT_KEY_PATH",
		"--principal-ca-path or PROGRAM_PRINCIPAL_ROOT_CA_PATH",
	} {
		require.ErrorContains(t, err, flag)
	}
	f := files{"a", "b", "c"}.args(t, "127.0.0.1:1")
	_, err = parse(f, nil)
	require.NoError(t, err)
	for arg, want := range map[string]string{
		"--principal-address=https://hub": "without a scheme", "--principal-address=hub:8443": "without a port", "--principal-address=": "want a value",
		"--principal-port=0": "want a port", "--keep-alive-ping-interval=9s": "want at least 10s",
	} {
		_, err = parse(append(f, arg), nil)
		require.ErrorContains(t, err, want, arg)
	}
}

func TestConnectionErrorsSayWhatToDo(t *testing.T) {
	w := relaytest.Open(t)
	stranger, err := pki.NewCA(pki.CAOptions{CommonName: "stranger"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		files files
		code  codes.Code
		want  []string
	}{
		"the principal's CA is another": {
			write(t, w.CA, stranger, relaytest.Component), codes.Unavailable,
			[]string{"server certificate CN=principal", "none of the CAs trusted here (CN=stranger)", "add its CA"},
		},
		"the principal trusts another": {
			write(t, stranger, w.CA, relaytest.Component), codes.Unavailable,
			[]string{"refused our client certificate", "issue it by a trusted CA"},
		},
		"it is no component": {
			write(t, w.CA, w.CA, "somebody"), codes.Unauthenticated, []string{"somebody", "--hub-components"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := parse(c.files.args(t, w.Address), nil)
			require.NoError(t, err)
			_, principal := connect(t, s)
			_, err = ask(t, principal)
			require.Equal(t, c.code, status.Code(err), err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// A connection must not be stuck with the certificate that it was opened with.
func TestRenewedCertificateIsUsedWhenTheOldOneHasExpired(t *testing.T) {
	t.Parallel()
	w := relaytest.Open(t)
	f := write(t, w.CA, w.CA, relaytest.Component)
	var (
		principal *uplink.Conn
		stream    tunnelv1.Relay_WatchClient
	)
	for life := 3 * time.Second; ; life *= 2 {
		end := time.Now().Add(life).Truncate(time.Second) // as it is written down
		f.renew(t, w.CA, pki.Validity{NotAfter: end})
		s, err := parse(f.args(t, w.Address), nil)
		require.NoError(t, err)
		_, principal = connect(t, s)
		stream, err = tunnelv1.NewRelayClient(principal).Watch(t.Context(), &tunnelv1.WatchRequest{})
		if err == nil {
			_, err = stream.Recv() // it is open
		}
		if err == nil {
			break
		}
		require.True(t, time.Now().After(end) && life < time.Minute, "%v", err) // this machine took longer than its lifetime
	}

	f.renew(t, w.CA, pki.Validity{}) // which closes nothing
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	require.Equal(t, codes.Unauthenticated, status.Code(err), err)
	require.ErrorContains(t, err, "expired")
	require.Eventually(t, func() bool { _, err = ask(t, principal); return err == nil }, relaytest.Timeout, 10*time.Millisecond)
	require.NoError(t, err)
}

// A terminal lasts longer than a certificate of minutes, if a newer one is shown in time.
func TestOpenStreamsStayWhenTheCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	w := relaytest.Open(t)
	f := write(t, w.CA, w.CA, relaytest.Component)
	for life := 3 * time.Second; ; life *= 2 {
		require.Less(t, life, relaytest.Timeout)
		end := time.Now().Add(life).Truncate(time.Second) // as it is written down
		f.renew(t, w.CA, pki.Validity{NotAfter: end})
		s, err := parse(f.args(t, w.Address), nil)
		require.NoError(t, err)
		material, principal := connect(t, s)
		terminal, err := tunnelv1.NewRelayClient(principal).Watch(t.Context(), &tunnelv1.WatchRequest{})
		if err == nil {
			_, err = terminal.Recv() // it is open
		}
		if err != nil {
			continue // this machine took longer than its lifetime
		}
		changed := material.Changed()
		f.renew(t, w.CA, pki.Validity{})
		<-changed
		if _, err = ask(t, principal); err != nil || time.Now().After(end) {
			continue
		}
		ended := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = terminal.Recv()
			}
			ended <- err
		}()
		select {
		case err := <-ended:
			require.NoError(t, err, "the newer certificate speaks for it")
		case <-time.After(time.Until(end) + time.Second):
		}
		require.NoError(t, principal.Close())
		require.Error(t, <-ended)
		return
	}
}

// The errors name the files, and the flags for them.
func TestMissingFilesAreNamed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	f := files{filepath.Join(folder, "none.crt"), filepath.Join(folder, "none.key"), filepath.Join(folder, "none-ca.crt")}
	s, err := parse(f.args(t, "127.0.0.1:1"), nil)
	require.NoError(t, err)
	material, err := s.Certificates("component", slog.New(slog.DiscardHandler), certs.NewMetrics(prometheus.NewRegistry()))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { relaytest.Check(t, material.Run(ctx)) })
	defer running.Wait()
	defer cancel()
	for _, want := range []string{"none.crt", "--principal-client-cert", "--principal-client-key", "none-ca.crt", "--principal-ca-path"} {
		require.Eventually(t, func() bool { return strings.Contains(material.Ready().Error(), want) }, relaytest.Timeout, time.Millisecond, want)
	}
}

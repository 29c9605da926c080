package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// What to do depends on what has failed: who has not shown a certificate needs none issued.
func TestRemedyIsThatOfTheHandshakesFailure(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "hub"})
	require.NoError(t, err)
	other, err := pki.NewCA(pki.CAOptions{CommonName: "hub"})
	require.NoError(t, err)
	ended := pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	for name, c := range map[string]struct {
		signer *pki.CA // nil if no certificate is shown
		serves pki.ServerOptions
		says   string
	}{
		"another name":    {ca, pki.ServerOptions{Names: []string{"elsewhere"}}, "pki issue principal --dns"},
		"another CA":      {other, pki.ServerOptions{Names: []string{"principal"}}, "pki propagate"},
		"ended":           {ca, pki.ServerOptions{Names: []string{"principal"}, Validity: ended}, "renew the principal's certificate"},
		"no TLS":          {nil, pki.ServerOptions{}, "is it the principal that answers there?"},
		"as it should be": {ca, pki.ServerOptions{Names: []string{"principal"}}, ""},
	} {
		server := httptest.NewUnstartedServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // the client says what failed
		if c.signer == nil {
			server.Start()
		} else {
			issued, err := c.signer.IssueServer(c.serves)
			require.NoError(t, err)
			pair, err := issued.TLS()
			require.NoError(t, err)
			server.TLS = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}
			server.StartTLS()
		}
		roots := x509.NewCertPool()
		roots.AddCert(ca.Certificate())
		dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "principal", RootCAs: roots}}
		connection, err := dialer.DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err == nil {
			require.NoError(t, connection.Close())
		}
		server.Close()
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.Error(t, err, name)
		require.Contains(t, tlsRemedy(err), c.says, name)
	}
}

// A certificate of a SPIFFE ID alone has no name to compare the host with, and needs none.
func TestRemedyForASPIFFEIDIsToPinIt(t *testing.T) {
	t.Parallel()
	leaf := &x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "hub.example", Path: "/principal"}}}
	err := leaf.VerifyHostname("hub.example.com")
	require.Error(t, err)
	require.Contains(t, tlsRemedy(err), "spiffe://hub.example/principal: have the agent know it so by --principal-spiffe-id")
}

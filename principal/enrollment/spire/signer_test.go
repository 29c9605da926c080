package spire_test

import (
	"crypto/x509"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The certificate of an agent is an X.509-SVID by the intermediate CA, for a client, and the principal accepts it.
func TestCertificatesOfAgents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, stop := start(t, setup{})
		synctest.Wait()
		require.NoError(t, p.Ready())
		require.EqualValues(t, 2*lifetime.Seconds(), p.requests[0].GetPreferredTtl())
		chain, err := p.signs("berlin")
		require.NoError(t, err)
		require.Len(t, chain, 2, "with the intermediate CA, and without the root")
		leaf := chain[0]
		require.Equal(t, "CN=berlin", leaf.Subject.String())
		require.Equal(t, []*url.URL{{Scheme: "spiffe", Host: "hub.test", Path: "/agent/berlin"}}, leaf.URIs)
		require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, leaf.ExtKeyUsage)
		require.Equal(t, x509.KeyUsageDigitalSignature, leaf.KeyUsage)
		require.False(t, leaf.IsCA)
		require.Equal(t, time.Now().Add(lifetime), leaf.NotAfter.Local())
		require.NoError(t, p.certificates.VerifyClient(chain))
		stop()
	})
}

// A SPIRE server that gives what nobody could use, or what is not ours, has the principal sign nothing, say why once, and ask again.
func TestServerThatLies(t *testing.T) {
	// below answers with a CA that is changed from an honest one, by the root, or by another CA that is above it.
	changed := func(change func(ca *x509.Certificate)) answers {
		return func(s *server, key any) ([][]byte, error) {
			ca := template("hub.test")
			change(ca)
			return [][]byte{s.root.sign(s.t, ca, key).Raw}, nil
		}
	}
	below := func(change func(ca *x509.Certificate)) answers {
		return func(s *server, key any) ([][]byte, error) {
			above := template("hub.test")
			change(above)
			middle := s.root.below(s.t, above)
			ca := template("hub.test")
			ca.NotAfter = time.Now().Add(time.Hour)
			return [][]byte{middle.sign(s.t, ca, key).Raw, middle.certificate.Raw}, nil
		}
	}
	for name, c := range map[string]struct {
		answer answers
		want   string
	}{
		"another key": {func(s *server, _ any) ([][]byte, error) {
			return honest(s, newKey(s.t).Public())
		}, "private key does not match public key"},
		"of another trust domain": {func(s *server, key any) ([][]byte, error) {
			return [][]byte{s.away.sign(s.t, template("spoke.test"), key).Raw}, nil
		}, "it is that of spiffe://spoke.test, and the principal's trust domain is hub.test"},
		"in another trust domain's name": {changed(func(ca *x509.Certificate) { ca.URIs[0].Host = "spoke.test" }), "it is that of spiffe://spoke.test"},
		"by another trust domain's root": {func(s *server, key any) ([][]byte, error) {
			return [][]byte{s.away.sign(s.t, template("hub.test"), key).Raw}, nil
		}, "not by the bundle of its trust domain"},
		"by a root of no bundle": {func(s *server, key any) ([][]byte, error) {
			return [][]byte{newAuthority(s.t, "hub.test").sign(s.t, template("hub.test"), key).Raw}, nil
		}, "none of the CAs trusted here"},
		"a workload's":              {changed(func(ca *x509.Certificate) { ca.URIs[0].Path = "/agent/berlin" }), "it is that of spiffe://hub.test/agent/berlin"},
		"of nobody":                 {changed(func(ca *x509.Certificate) { ca.URIs = nil }), "CA: "},
		"not a CA":                  {changed(func(ca *x509.Certificate) { ca.IsCA, ca.KeyUsage = false, x509.KeyUsageDigitalSignature }), "is not one of a CA"},
		"may not sign certificates": {changed(func(ca *x509.Certificate) { ca.KeyUsage = x509.KeyUsageCRLSign }), "certificates by it would not be accepted"},
		"ended": {changed(func(ca *x509.Certificate) {
			ca.NotBefore, ca.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}), "it has ended already: compare the clocks"},
		"not begun": {changed(func(ca *x509.Certificate) { ca.NotBefore = time.Now().Add(2 * time.Hour) }), "it has not begun yet: compare the clocks"},
		"for other trust domains": {changed(func(ca *x509.Certificate) {
			ca.PermittedDNSDomainsCritical, ca.PermittedURIDomains = true, []string{"spoke.test"}
		}), "certificates by it would not be accepted"},
		"not for this one":      {changed(func(ca *x509.Certificate) { ca.ExcludedURIDomains = []string{"hub.test"} }), "certificates by it would not be accepted"},
		"for servers only":      {changed(func(ca *x509.Certificate) { ca.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), "certificates by it would not be accepted"},
		"below too long a path": {below(func(ca *x509.Certificate) { ca.MaxPathLen, ca.MaxPathLenZero = 0, true }), "too many intermediates"},
		"below one that ended": {below(func(ca *x509.Certificate) {
			ca.NotBefore, ca.NotAfter = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1999, 12, 31, 0, 0, 0, 0, time.UTC)
		}), "expired at 1999-12-31"},
		"below one for others": {below(func(ca *x509.Certificate) { ca.PermittedURIDomains = []string{"spoke.test"} }), "certificates by it would not be accepted"},
		"nothing":              {func(*server, any) ([][]byte, error) { return nil, nil }, "it has 0 certificates: want 1 to 8"},
		"a long chain":         {func(*server, any) ([][]byte, error) { return make([][]byte, 9), nil }, "it has 9 certificates: want 1 to 8"},
		"junk":                 {func(*server, any) ([][]byte, error) { return [][]byte{[]byte("junk")}, nil }, "certificate 1: x509: malformed"},
		"a huge answer":        {func(*server, any) ([][]byte, error) { return [][]byte{make([]byte, 300<<10)}, nil }, "received message larger than max"},
		"junk above it": {func(s *server, key any) ([][]byte, error) {
			chain, err := honest(s, key)
			return append(chain, []byte("junk")), err
		}, "certificate 2: x509: malformed"},
		"no entry -downstream":   {refusal(codes.PermissionDenied, "authorization denied"), `"authorization denied": it gives a CA only to those whose registration entry says so: create the entry of ` + principalID + ` with -downstream`},
		"another service":        {refusal(codes.Unimplemented, "unknown service"), `not the API of a SPIRE server for its agents: see --signer-spire-server`},
		"an error with controls": {refusal(codes.Internal, "no\x1b[2J"), `"no\x1b[2J": see the log of the SPIRE server`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, stop := start(t, setup{answer: c.answer})
				synctest.Wait()
				require.ErrorContains(t, p.Ready(), `TLS certificates "signer": intermediate CA of the SPIRE server at passthrough:spire:8081: `)
				require.ErrorContains(t, p.Ready(), c.want)
				_, err := p.signs("berlin")
				require.ErrorContains(t, err, c.want)
				<-time.After(2 * time.Minute)
				require.Equal(t, 1, p.said("level="), "what is wrong is said once")
				require.Equal(t, 1, p.said("waiting for them"))
				require.Equal(t, 8, p.asked(), "after a second at first, and after half a minute at last")
				p.answersBy(honest)
				<-time.After(time.Minute)
				require.NoError(t, p.Ready())
				_, err = p.signs("berlin")
				require.NoError(t, err)
				stop()
			})
		})
	}
}

// refusal answers with a status.
func refusal(code codes.Code, text string) answers {
	return func(*server, any) ([][]byte, error) { return nil, status.Error(code, text) }
}

// The principal shows its request to nobody but the SPIRE server of its own trust domain.
func TestServersThatAreAnother(t *testing.T) {
	for name, c := range map[string]struct {
		setup func(t *testing.T) setup
		want  string
	}{
		"a workload":                      {func(*testing.T) setup { return setup{serverID: "spiffe://hub.test/agent/berlin"} }, "its SPIFFE ID is not " + serverID},
		"that of another trust domain":    {func(t *testing.T) setup { t.Helper(); return setup{serverID: "spiffe://spoke.test/spire/server"} }, "not by the bundle of its trust domain"},
		"by a CA that is not ours":        {func(t *testing.T) setup { t.Helper(); return setup{serverRoot: newAuthority(t, "hub.test")} }, "none of the CAs trusted here"},
		"when our bundle has another CA":  {func(t *testing.T) setup { t.Helper(); return setup{bundled: newAuthority(t, "hub.test")} }, "none of the CAs trusted here"},
		"with no such service":            {func(*testing.T) setup { return setup{bare: true} }, "not the API of a SPIRE server for its agents"},
		"nobody":                          {func(*testing.T) setup { return setup{absent: true} }, "see whether the SPIRE server runs, and whether its API is where --signer-spire-server says"},
		"and no form is of the principal": {func(*testing.T) setup { return setup{auth: "spiffe://spoke.test/agent/{agent}"} }, "no form in --auth is of the trust domain hub.test"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				p, stop := start(t, c.setup(t))
				<-time.After(2 * time.Minute)
				require.ErrorContains(t, p.Ready(), c.want)
				require.Zero(t, p.asked())
				require.Equal(t, 1, p.said("level="), "what is wrong is said once")
				stop()
			})
		})
	}
}

// At half of its life the CA is replaced, so that certificates always last as long as they are to. While there is no other one it is used to its
// end, and what it signs ends with it.
func TestCAIsRenewedAtHalfOfItsLife(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, stop := start(t, setup{})
		synctest.Wait()
		first, err := p.signs("berlin")
		require.NoError(t, err)
		<-time.After(lifetime - time.Second)
		require.Equal(t, 1, p.asked())
		<-time.After(2 * time.Second)
		require.Equal(t, 2, p.asked())
		second, err := p.signs("berlin")
		require.NoError(t, err)
		require.NotEqual(t, first[1].PublicKey, second[1].PublicKey, "each has a key of its own")
		require.Equal(t, time.Now().Add(lifetime), second[0].NotAfter.Local())

		p.answersBy(func(*server, any) ([][]byte, error) { return nil, errors.New("not now") })
		end := second[1].NotAfter
		<-time.After(time.Until(end) - time.Minute)
		require.NoError(t, p.Ready())
		require.Equal(t, 1, p.said("keeping the last good ones"))
		require.InDelta(t, float64(end.Unix()), p.metric("argocd_agent_certificate_not_after_timestamp_seconds", ""), 0)
		require.InDelta(t, 1, p.metric("argocd_agent_certificate_reloads_total", "failure"), 0)
		last, err := p.signs("berlin")
		require.NoError(t, err)
		require.Equal(t, end, last[0].NotAfter)
		require.NoError(t, p.certificates.VerifyClient(last))
		<-time.After(time.Minute + time.Second)
		require.ErrorContains(t, p.Ready(), "valid only from")
		require.ErrorContains(t, p.Ready(), "not now")
		_, err = p.signs("berlin")
		require.ErrorContains(t, err, "valid only from")

		p.answersBy(honest)
		<-time.After(time.Minute)
		require.NoError(t, p.Ready())
		stop()
	})
}

// A CA whose root leaves the bundle is replaced at once: nobody would accept what it signs.
func TestBundleThatLosesTheRootOfTheCA(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, stop := start(t, setup{})
		synctest.Wait()
		first, err := p.signs("berlin")
		require.NoError(t, err)

		next := newAuthority(t, "hub.test")
		p.bundles <- bundles(p.away, p.root, next)
		synctest.Wait()
		require.Equal(t, 1, p.asked(), "one that stays good is kept")
		p.answersBy(func(s *server, key any) ([][]byte, error) {
			return [][]byte{next.sign(s.t, template("hub.test"), key).Raw}, nil
		})
		p.svid <- next.issue(t, principalID)
		synctest.Wait()
		require.Equal(t, 1, p.asked())
		p.bundles <- bundles(p.away, next)
		<-time.After(time.Minute) // the server's own certificate is by the root that has left: it is not asked
		require.Equal(t, 1, p.asked())
		require.Equal(t, 1, p.said("keeping the last good ones"))
		require.Error(t, p.certificates.VerifyClient(first))
		stop()
	})
}

// A CA that is old when it is issued does not have the principal ask all the time.
func TestCAThatIsOldAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, stop := start(t, setup{answer: func(s *server, key any) ([][]byte, error) {
			ca := template("hub.test")
			ca.NotAfter = time.Now().Add(2 * time.Second)
			return [][]byte{s.root.sign(s.t, ca, key).Raw}, nil
		}})
		<-time.After(time.Minute + time.Second)
		require.Equal(t, 13, p.asked())
		stop()
	})
}

// Agents that read no Workload API know the principal by its trust domain's CAs, if those are what its own certificate is by.
func TestRootsOfAgents(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, stop := start(t, setup{})
		synctest.Wait()
		require.Equal(t, string(pemOf(p.root.certificate.Raw)), string(p.Roots()), "and not those of trust domains that it is federated with")
		next := newAuthority(t, "hub.test")
		p.bundles <- bundles(p.away, p.root, next)
		synctest.Wait()
		roots, err := certs.ParseCertificates(p.Roots())
		require.NoError(t, err)
		require.Len(t, roots, 2)
		p.svid <- p.away.issue(t, principalID)
		synctest.Wait()
		require.Nil(t, p.Roots())
		p.svid <- p.root.issue(t, "https://hub.test/principal")
		synctest.Wait()
		require.Nil(t, p.Roots())
		stop()
	})
}

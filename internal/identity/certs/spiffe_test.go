package certs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// trustDomain is a CA that issues X.509-SVIDs, as SPIRE's server is one.
type trustDomain struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	expired     bool // what it issues
}

func newTrustDomain(t *testing.T, name string) trustDomain {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA of " + name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{{Scheme: "spiffe", Host: name}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return trustDomain{certificate: certificate, key: key}
}

// issue issues an X.509-SVID of an ID, which may be of any trust domain.
func (d trustDomain) issue(t *testing.T, id string) pki.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	uri, err := url.Parse(id)
	require.NoError(t, err)
	end := time.Now().Add(time.Hour)
	if d.expired {
		end = time.Now().Add(-time.Minute)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{Country: []string{"US"}, Organization: []string{"SPIRE"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		URIs: []*url.URL{uri},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, d.certificate, &key.PublicKey, d.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pki.Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}
}

// bundles are those of trust domains, by name.
func bundles(domains map[string]trustDomain) certs.Blocks {
	blocks := certs.Blocks{Bundles: make(map[string][]byte)}
	for name, d := range domains {
		blocks.Bundles[name] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: d.certificate.Raw})
	}
	return blocks
}

// workloadEnd is one side that has what the Workload API would give to it.
func workloadEnd(t *testing.T, pair pki.Pair, trusted map[string]trustDomain) *end {
	t.Helper()
	e := &end{pair: newMemory(pairBlocks(pair)), roots: newMemory(bundles(trusted))}
	e.fixture = run(t, certs.Options{Pair: e.pair, Roots: e.roots}).ready(t)
	e.log.await(t, "Loaded TLS certificates")
	e.log.await(t, "Loaded TLS certificates")
	return e
}

const (
	principalID = "spiffe://hub.test/ns/argocd/sa/argocd-agent-principal"
	agentID     = "spiffe://spoke.test/ns/argocd/sa/argocd-agent"
)

// pinned are a client's credentials for a server of that ID.
func pinned(e *end, id string) certs.ClientOptions {
	return certs.ClientOptions{Source: e.Source, ServerID: spiffeid.RequireFromString(id)}
}

func TestTrustDomainSpeaksForItselfAlone(t *testing.T) {
	hub, spoke := newTrustDomain(t, "hub.test"), newTrustDomain(t, "spoke.test")
	federated := map[string]trustDomain{"hub.test": hub, "spoke.test": spoke}
	principal := workloadEnd(t, hub.issue(t, principalID), federated)
	address := serve(t, server(principal))

	for name, c := range map[string]struct {
		pair       pki.Pair
		trusts     map[string]trustDomain
		want       string // of the principal
		log, error string
	}{
		"federated":                      {spoke.issue(t, agentID), federated, principalID, "", ""},
		"the agent's CA is not the ID's": {spoke.issue(t, "spiffe://hub.test/ns/argocd/sa/argocd-agent"), federated, principalID, "not by the bundle of its trust domain", "refused our client certificate"},
		"the CA is of no bundle":         {newTrustDomain(t, "spoke.test").issue(t, agentID), federated, principalID, "none of the CAs trusted here", "refused our client certificate"},
		"no SPIFFE ID": {
			spoke.issue(t, "https://spoke.test/agent"), federated, principalID, "not by the bundle of its trust domain", "refused our client certificate",
		},
		"another principal": {
			spoke.issue(t, agentID), federated, "spiffe://hub.test/ns/argocd/sa/other", "refused our server certificate",
			"is for " + principalID + ", but spiffe://hub.test/ns/argocd/sa/other was wanted",
		},
		"the principal's bundle is missing": {
			spoke.issue(t, agentID), map[string]trustDomain{"spoke.test": spoke}, principalID, "refused our server certificate", "none of the CAs trusted here",
		},
		"the principal's CA is not its ID's": {
			spoke.issue(t, agentID), map[string]trustDomain{"hub.test": spoke, "spoke.test": hub}, principalID, "refused our server certificate", "not by the bundle of its trust domain",
		},
	} {
		t.Run(name, func(t *testing.T) {
			agent := workloadEnd(t, c.pair, c.trusts)
			err := call(t, address, certs.ClientCredentials(pinned(agent, c.want)))
			if c.error == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.error)
			principal.log.await(t, c.log)
		})
	}
}

// A server is known by its ID also where the CAs come from a file.
func TestServerIsPinnedByItsID(t *testing.T) {
	hub := newTrustDomain(t, "hub.test")
	blocks := certs.Blocks{CAs: bundles(map[string]trustDomain{"x": hub}).Bundles["x"]}
	newSide := func(id string) *end {
		e := &end{pair: newMemory(pairBlocks(hub.issue(t, id))), roots: newMemory(blocks)}
		e.fixture = run(t, certs.Options{Pair: e.pair, Roots: e.roots}).ready(t)
		return e
	}
	address := serve(t, server(newSide(principalID)))
	agent := newSide(agentID)
	require.NoError(t, call(t, address, certs.ClientCredentials(pinned(agent, principalID))))
	require.ErrorContains(t, call(t, address, certs.ClientCredentials(pinned(agent, agentID))), agentID+" was wanted")
	require.ErrorContains(t, call(t, address, client(agent)), "127.0.0.1 was wanted")
}

func TestLostBundleEndsTrust(t *testing.T) {
	hub, spoke := newTrustDomain(t, "hub.test"), newTrustDomain(t, "spoke.test")
	principal := workloadEnd(t, hub.issue(t, principalID), map[string]trustDomain{"hub.test": hub, "spoke.test": spoke})
	agent, err := certs.ParseCertificates(spoke.issue(t, agentID).Certificate)
	require.NoError(t, err)
	require.NoError(t, principal.VerifyClient(agent))
	principal.after(t, func() { principal.roots.put(bundles(map[string]trustDomain{"hub.test": hub})) })
	require.ErrorContains(t, principal.VerifyClient(agent), "none of the CAs trusted here")
	principal.after(t, func() { principal.roots.put(bundles(map[string]trustDomain{"hub.test": spoke, "spoke.test": hub})) })
	require.ErrorContains(t, principal.VerifyClient(agent), "not by the bundle of its trust domain")

	principal.roots.put(certs.Blocks{Bundles: map[string][]byte{"Bad domain": nil}})
	principal.log.await(t, `trust domain \"Bad domain\"`)
	principal.roots.put(certs.Blocks{Bundles: map[string][]byte{"hub.test": []byte("none")}})
	principal.log.await(t, `bundle of trust domain \"hub.test\": no certificate in PEM form`)
	principal.roots.put(certs.Blocks{Bundles: map[string][]byte{}})
	principal.log.await(t, "there is no bundle of any trust domain")
	require.NoError(t, principal.Ready(), "the last good ones are kept")
}

// X.509-SVIDs of SPIRE all have the same subject, so messages name them by their IDs, and no two attempts have different messages.
func TestHandshakeErrorsNameSVIDs(t *testing.T) {
	hub, spoke := newTrustDomain(t, "hub.test"), newTrustDomain(t, "spoke.test")
	principal := workloadEnd(t, hub.issue(t, principalID), map[string]trustDomain{"hub.test": hub})
	agent := workloadEnd(t, spoke.issue(t, agentID), map[string]trustDomain{"hub.test": hub})
	address := serve(t, server(principal))
	require.ErrorContains(t, call(t, address, certs.ClientCredentials(pinned(agent, principalID))), "refused our client certificate of "+agentID)
	principal.log.await(t, "client certificate of "+agentID+" was issued by")

	late := hub
	late.expired = true
	principal = workloadEnd(t, late.issue(t, principalID), map[string]trustDomain{"hub.test": hub})
	address = serve(t, server(principal))
	first := call(t, address, certs.ClientCredentials(pinned(agent, principalID)))
	require.ErrorContains(t, first, "server certificate of "+principalID+" expired at")
	require.NotContains(t, first.Error(), "current time")
}

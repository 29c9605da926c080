package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/e2e/lab/spire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// issuingBySPIRE is a principal whose signer is a SPIRE of its own.
type issuingBySPIRE struct {
	issuing
	domain *spire.Domain
	entry  string // the principal's
}

// newIssuingBySPIRE starts a principal that has certificates signed by an intermediate CA of a SPIRE, which gives it one if downstream is set.
func newIssuingBySPIRE(t *testing.T, downstream bool) issuingBySPIRE {
	t.Helper()
	grants(t, "principal-enrollment-rbac.yaml", lab.Namespace)
	port, err := shared.Host.Port()
	require.NoError(t, err)
	p := issuingBySPIRE{issuing{enrollment: port}, newTrustDomain(t, "hub.test"), ""}
	p.Principal, err = shared.NewPrincipal(t.Context(), lab.PrincipalOptions{WorkloadAPI: p.domain.Socket, Alive: true, Args: []string{
		"--auth=spiffe://hub.test" + agentPath + "{agent}", "--signer=spire", "--signer-spire-server=" + p.domain.API,
		"--certificate-lifetime=30s", "--enrollment-port=" + strconv.Itoa(p.enrollment),
	}})
	require.NoError(t, err)
	p.entry = p.registers(t, downstream)
	p.roots, err = p.domain.CAs(t.Context())
	require.NoError(t, err)
	cas, err := certs.ParseCertificates(p.roots)
	require.NoError(t, err)
	hub := spiffeid.RequireTrustDomainFromString("hub.test")
	p.trust = tlsconfig.TLSClientConfig(x509bundle.FromX509Authorities(hub, cas), tlsconfig.AuthorizeID(spiffeid.RequireFromString(principalSVID)))
	p.trust.MinVersion = tls.VersionTLS13
	start(t, p.Start)
	t.Cleanup(func() { stopped(t, p.Stop) })
	return p
}

// registers makes the principal's entry.
func (p issuingBySPIRE) registers(t *testing.T, downstream bool) string {
	t.Helper()
	entry, err := p.domain.Register(t.Context(), spire.Entry{SPIFFEID: principalSVID, Path: p.Path(), Downstream: downstream})
	require.NoError(t, err)
	return entry
}

// signerReady is what the principal logs when it has an intermediate CA.
const signerReady = "intermediate CA of the SPIRE server at "

// Where a hub has SPIRE, a spoke needs none: its agent gets an X.509-SVID of the hub's trust domain from the principal, for a token and later
// for the one before.
func TestAgentEnrollsAndRenewsBySPIRE(t *testing.T) {
	t.Parallel()
	principal := newIssuingBySPIRE(t, true)
	says(t, principal, signerReady)
	lone := unique("lone")
	issued, err := principal.enrolls(t, enrollmentToken(t, lone), newCSR(t, lone))
	require.NoError(t, err)
	require.Equal(t, "CN="+lone, issued.Subject.String())
	require.Len(t, issued.URIs, 1)
	require.Equal(t, "spiffe://hub.test"+agentPath+lone, issued.URIs[0].String())
	require.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, issued.ExtKeyUsage)
	require.False(t, issued.IsCA)
	require.WithinDuration(t, time.Now().Add(30*time.Second), issued.NotAfter, 20*time.Second)

	s := principal.joins(t, unique("spired"), "--principal-spiffe-id="+principalSVID)
	s.newTwin("first").create(t).arrives(t)
	first := secretOf(t, s.spoke, s.name, "argocd-agent-client-tls")
	chain, err := certs.ParseCertificates(first.Data["tls.crt"])
	require.NoError(t, err)
	require.Len(t, chain, 2, "with the intermediate CA: the root is in the bundle")
	s.renews(t, first)
	s.newTwin("second").create(t).arrives(t)
	requireReady(t, principal.HealthURL)
}

// One command on the hub, with the bundle of SPIRE, and one on the spoke set up an agent that has an X.509-SVID.
func TestManifestForASpokeWithoutSPIRE(t *testing.T) {
	t.Parallel()
	principal := newIssuingBySPIRE(t, true)
	says(t, principal, signerReady)
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	require.NoError(t, os.WriteFile(bundle, principal.roots, 0o600))
	s := principal.installs(t, unique("bundled"), "--principal-spiffe-id", principalSVID, "--root-ca-path", bundle)
	s.newTwin("guestbook").create(t).arrives(t)
	chain, err := certs.ParseCertificates(secretOf(t, s.spoke, s.name, "argocd-agent-client-tls").Data["tls.crt"])
	require.NoError(t, err)
	require.Equal(t, "spiffe://hub.test"+agentPath+s.name, chain[0].URIs[0].String())

	// doctor knows the principal as the agent does.
	a := admin{hub: lab.Namespace, spoke: s.name, environment: []string{"KUBECONFIG=" + shared.Kubeconfigs(), "ARGOCD_AGENT_AGENT_NAMESPACE=" + s.name}}
	command := "doctor " + s.name + " --side spoke --agent-context spoke-b --principal-address " + principal.Address
	inspected, _ := a.try(t, "agent inspect "+s.name+" --agent-context spoke-b") // nobody says whether it is connected
	require.Contains(t, inspected.output, "for      spiffe://hub.test"+agentPath+s.name)
	require.NotContains(t, inspected.output, "PROBLEM")
	walked, _ := a.try(t, command) // of its Redis nothing is here
	require.Contains(t, walked.output, "ok       TLS to the principal")
	require.Contains(t, walked.output, "ok       identity and authorisation of the agent at the principal")
	_, err = s.spoke.Kubernetes.CoreV1().ConfigMaps(s.name).Patch(t.Context(), "argocd-agent-params", types.MergePatchType,
		[]byte(`{"data": {"agent.principal.spiffe-id": "spiffe://hub.test/another"}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	walked, err = a.try(t, command)
	require.Error(t, err)
	require.Regexp(t, `failed +TLS to the principal\n.* is for `+principalSVID+`, but spiffe://hub.test/another was wanted`, walked.output)
}

// SPIRE replaces its CA every few hours. Agents that have no SPIRE learn of the next one with each certificate, before anything is signed by it.
func TestAgentsFollowTheCAOfSPIRE(t *testing.T) {
	t.Parallel()
	principal := newIssuingBySPIRE(t, true)
	s := principal.joins(t, unique("rotated"), "--principal-spiffe-id="+principalSVID)
	s.newTwin("first").create(t).arrives(t)

	next, err := principal.domain.PrepareCA(t.Context())
	require.NoError(t, err)
	s.keeps(t, "argocd-agent-ca", "ca.crt", func(cas []*x509.Certificate) bool { return len(cas) == 2 })
	says(t, s.agent, "Trusted CAs replaced by those of the principal")
	require.NoError(t, principal.domain.ActivateCA(t.Context(), next))
	old := x509.NewCertPool()
	old.AppendCertsFromPEM(principal.roots)
	s.keeps(t, "argocd-agent-client-tls", "tls.crt", func(chain []*x509.Certificate) bool {
		_, err := chain[len(chain)-1].Verify(x509.VerifyOptions{Roots: old})
		return err != nil // it is by the next one
	})
	s.newTwin("second").create(t).arrives(t)

	require.NoError(t, principal.domain.RevokeOldCA(t.Context()))
	s.keeps(t, "argocd-agent-ca", "ca.crt", func(cas []*x509.Certificate) bool {
		return len(cas) == 1 && !bytes.Equal(cas[0].Raw, pemBlock(t, principal.roots))
	})
	mark := s.agent.Mark()
	require.NoError(t, s.agent.Restart(t.Context()))
	saysNow(t, s.agent, mark, lab.ConnectedAgentLine)
	s.newTwin("third").create(t).arrives(t)
	requireReady(t, principal.HealthURL)
}

// pemBlock is what the first block of PEM text has.
func pemBlock(t *testing.T, text []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(text)
	require.NotNil(t, block)
	return block.Bytes
}

// keeps waits until a key of a Secret of the site's agent has such certificates.
func (s *site) keeps(t *testing.T, secret, key string, such func([]*x509.Certificate) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	_, err := s.spoke.Wait(ctx, core(s.spoke, "secrets", s.name, secret).selection, func(o *unstructured.Unstructured) bool {
		if o == nil {
			return false
		}
		encoded, _, _ := unstructured.NestedString(o.Object, "data", key)
		text, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return false
		}
		certificates, err := certs.ParseCertificates(text)
		return err == nil && such(certificates)
	})
	require.NoError(t, err)
}

// A principal whose entry is not downstream gets no CA. Its log and its readiness say why and what to do, and it goes on when that is done.
func TestSPIREGivesNoCAWithoutDownstream(t *testing.T) {
	t.Parallel()
	principal := newIssuingBySPIRE(t, false)
	const remedy = "it gives a CA only to those whose registration entry says so: create the entry of " + principalSVID + " with -downstream"
	says(t, principal, remedy)
	requireNotReady(t, principal.HealthURL, "signer: not ready", remedy)
	name := unique("early")
	token, csr := enrollmentToken(t, name), newCSR(t, name)
	_, err := principal.enrolls(t, token, csr)
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
	require.NotContains(t, err.Error(), "downstream")

	mark := principal.Mark()
	require.NoError(t, principal.domain.Delete(t.Context(), principal.entry))
	principal.registers(t, true)
	saysSlowly(t, principal, mark, signerReady)
	requireReady(t, principal.HealthURL)
	_, err = principal.enrolls(t, token, csr)
	require.NoError(t, err, "the token was not lost")
}

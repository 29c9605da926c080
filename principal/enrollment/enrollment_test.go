package enrollment_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

// A token that does not hold gets nothing, and says why to whoever has it.
func TestTokensThatDoNotHold(t *testing.T) {
	t.Parallel()
	token := enrolltoken.New("berlin")
	entry := func(expires time.Duration) []byte {
		text, err := enrolltoken.NewEntry(token, time.Now().Add(expires)).Encode()
		require.NoError(t, err)
		return text
	}
	for name, c := range map[string]struct {
		kept map[string][]byte // nil for no Secret
		text string
		code codes.Code
		says string
	}{
		"no Secret":           {nil, token.Text(), codes.Unauthenticated, "is not known"},
		"another agent's key": {map[string][]byte{"paris": entry(time.Hour)}, token.Text(), codes.Unauthenticated, "is not known"},
		"another token":       {map[string][]byte{"berlin": entry(time.Hour)}, enrolltoken.New("berlin").Text(), codes.Unauthenticated, "is not known"},
		"junk in the Secret":  {map[string][]byte{"berlin": []byte("junk")}, token.Text(), codes.Unauthenticated, "is not known"},
		"expired":             {map[string][]byte{"berlin": entry(-time.Second)}, token.Text(), codes.Unauthenticated, "has expired"},
		"no token":            {map[string][]byte{"berlin": entry(time.Hour)}, "berlin", codes.Unauthenticated, "no enrollment token"},
		"good":                {map[string][]byte{"berlin": entry(time.Hour)}, token.Text(), codes.OK, ""},
	} {
		o := newOffice(t, nil)
		if c.kept != nil {
			o.keeps(c.kept)
		}
		answer, err := o.enroll("192.0.2.1", c.text, csrOf(t, "berlin"))
		require.Equal(t, c.code, status.Code(err), "%s: %v", name, err)
		if c.code == codes.OK {
			require.NotEmpty(t, answer.GetCertificate())
			o.counts("token", "issued", 1)
			continue
		}
		require.ErrorContains(t, err, c.says, name)
		o.counts("token", "refused", 1)
		require.NotContains(t, o.log.String(), token.Text()[len("berlin."):], "no log has a token")
	}
}

// A request that asks for anything is refused before it uses the token up.
func TestRequestsThatUseNoToken(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	token := o.token("berlin")
	for want, csr := range map[string][]byte{
		`and has to be "CN=berlin"`: csrOf(t, "paris"),
		"16384 are the limit":       make([]byte, pki.MaxRequest+1),
		"asn1":                      []byte("junk"),
	} {
		_, err := o.enroll("192.0.2.1", token, csr)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
		require.ErrorContains(t, err, want)
		_, err = o.renew("berlin", csr)
		require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
		require.ErrorContains(t, err, want)
	}
	csr := csrOf(t, "berlin")
	for range 2 {
		_, err := o.enroll("192.0.2.1", token, csr)
		require.NoError(t, err, "the answer may be lost")
	}
	_, err := o.enroll("192.0.2.1", token, csrOf(t, "berlin"))
	require.Equal(t, codes.Unauthenticated, status.Code(err))
	require.ErrorContains(t, err, "was used for another key already")
}

// Who is blocked learns that, if its token holds, and has the token still when it is not blocked any more.
func TestBlockedAgentKeepsItsToken(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	token := o.token("berlin")
	o.blocked["berlin"] = errors.New("agent berlin is blocked")
	_, err := o.enroll("192.0.2.1", enrolltoken.New("berlin").Text(), csrOf(t, "berlin"))
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	require.NotContains(t, err.Error(), "blocked", "who has no token learns nothing")
	_, err = o.enroll("192.0.2.1", token, csrOf(t, "berlin"))
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "its holder would be refused: agent berlin is blocked")
	delete(o.blocked, "berlin")
	_, err = o.enroll("192.0.2.1", token, csrOf(t, "berlin"))
	require.NoError(t, err)
	o.counts("token", "refused", 2)
}

// What is wrong on the hub is for its log. The caller may come again.
func TestErrorsOfTheHubDoNotReachCallers(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	const private = "10.0.0.1"
	for name, c := range map[string]struct {
		verb  string
		err   error
		times int
		fails bool
	}{
		"may not read":             {"get", apierrors.NewForbidden(secrets, "x", errors.New(private)), 1, true},
		"no API server":            {"get", errors.New("dial tcp " + private), 1, true},
		"may not write":            {"update", apierrors.NewForbidden(secrets, "x", errors.New(private)), 1, true},
		"a status of its own":      {"update", status.Error(codes.NotFound, private), 1, true},
		"another writes once":      {"update", apierrors.NewConflict(secrets, "x", errors.New(private)), 1, false},
		"others write all along":   {"update", apierrors.NewConflict(secrets, "x", errors.New(private)), 100, true},
		"the Secret goes meantime": {"update", apierrors.NewNotFound(secrets, private), 1, true},
	} {
		signed := 0
		var o *office
		o = newOffice(t, signs(func(_ context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
			signed++
			return o.ca.SignClient(pki.ClientOptions{CommonName: string(agent)}, request.Key)
		}))
		token, left := o.token("berlin"), c.times
		o.hub.PrependReactor(c.verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			left--
			return left >= 0, nil, c.err
		})
		_, err := o.enroll("192.0.2.1", token, csrOf(t, "berlin"))
		if !c.fails {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, status.Error(codes.Unavailable, unavailable).Error(), err.Error(), name)
		require.Zero(t, signed, name)
		require.Contains(t, o.log.String(), private, name)
		o.counts("token", "failed", 1)
	}
}

// What a signer returns is looked at before it is given away, and what it complains of is for the log.
func TestWhatSignersReturnIsNotBelieved(t *testing.T) {
	t.Parallel()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	sign := func(name string) signs {
		return func(_ context.Context, _ identity.Agent, request pki.Request) ([]byte, error) {
			return ca.SignClient(pki.ClientOptions{CommonName: name}, request.Key)
		}
	}
	returns := func(text []byte, err error) signs {
		return func(context.Context, identity.Agent, pki.Request) ([]byte, error) { return text, err }
	}
	anothers, err := ca.IssueClient(pki.ClientOptions{CommonName: "berlin"})
	require.NoError(t, err)
	for logged, c := range map[string]struct {
		signer signs
		code   codes.Code
		says   string
	}{
		"signer: no CA at 10.0.0.1":              {returns(nil, errors.New("no CA at 10.0.0.1")), codes.Unavailable, unavailable},
		"code = NotFound desc = no CA":           {returns(nil, status.Error(codes.NotFound, "no CA")), codes.Unavailable, unavailable},
		"its certificate: no certificate in PEM": {returns([]byte("junk"), nil), codes.Unavailable, unavailable},
		"its certificate: no certificate":        {returns(nil, nil), codes.Unavailable, unavailable},
		"its certificate: it is one of a CA":     {returns(ca.PEM().Certificate, nil), codes.Unavailable, unavailable},
		"it is for another key than was":         {returns(anothers.Certificate, nil), codes.Unavailable, unavailable},
		"would take it for another's":            {sign("paris"), codes.PermissionDenied, "by --auth the principal would take it for another's"},
		"by --auth the principal would not":      {sign("Not a name"), codes.PermissionDenied, "by --auth the principal would not know it"},
	} {
		o := newOffice(t, c.signer)
		_, err := o.enroll("192.0.2.1", o.token("berlin"), csrOf(t, "berlin"))
		require.Equal(t, c.code, status.Code(err), "%s: %v", logged, err)
		require.ErrorContains(t, err, c.says)
		require.NotContains(t, err.Error(), "no CA")
		require.Contains(t, o.log.String(), logged)
	}

	// Nobody gets a certificate of a component, nor one whose holder would be refused.
	o := newOffice(t, nil)
	_, err = o.enroll("192.0.2.1", o.token(component), csrOf(t, component))
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	o.trust.Change(errors.New("agent berlin is blocked"))
	_, err = o.enroll("192.0.2.1", o.token("berlin"), csrOf(t, "berlin"))
	require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "its holder would be refused: agent berlin is blocked")
	_, err = o.renew("berlin", csrOf(t, "berlin"))
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	o.counts("certificate", "refused", 1)
}

// Who renews does so by a certificate of its own.
func TestWhoMayNotRenew(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	_, err := o.renew(component, csrOf(t, component))
	require.Equal(t, codes.Unauthenticated, status.Code(err), "%v", err)
	_, err = o.renew("berlin", csrOf(t, "paris"))
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	for name, secured := range map[string]credentials.AuthInfo{
		"without TLS": nil, "without a certificate": credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{}}},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, AuthInfo: secured})
		_, err = o.Renew(ctx, &enrollv1.RenewRequest{Csr: csrOf(t, "berlin")})
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", name, err)
	}
	answer, err := o.renew("berlin", csrOf(t, "berlin"))
	require.NoError(t, err)
	require.NotEmpty(t, answer.GetCertificate())
}

// listening finds the address in the log of a server.
type listening chan string

// Write implements io.Writer.
func (l listening) Write(line []byte) (int, error) {
	if _, address, ok := bytes.Cut(line, []byte("address=")); ok && bytes.Contains(line, []byte("Listen for agents that enroll")) {
		l <- strings.TrimSpace(string(address))
	}
	return len(line), nil
}

// Whoever sends more than any request has is not listened to.
func TestPortTakesSmallRequestsOnly(t *testing.T) {
	t.Parallel()
	o := newOffice(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	address, served := make(listening, 1), make(chan error, 1)
	go func() {
		served <- o.Serve(ctx, "127.0.0.1:0", insecure.NewCredentials(), slog.New(slog.NewTextHandler(address, nil)))
	}()
	conn, err := grpc.NewClient(<-address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	client, token := enrollv1.NewEnrollmentClient(conn), o.token("berlin")

	_, err = client.Enroll(ctx, &enrollv1.EnrollRequest{Token: strings.Repeat("x", 32<<10)})
	require.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err)
	require.ErrorContains(t, err, "received message larger than max")
	_, err = client.Enroll(metadata.AppendToOutgoingContext(ctx, "x", strings.Repeat("x", 16<<10)), &enrollv1.EnrollRequest{Token: token})
	require.Error(t, err)
	require.ErrorContains(t, err, "header list size")
	_, err = client.Enroll(ctx, &enrollv1.EnrollRequest{Token: token, Csr: csrOf(t, "berlin")})
	require.NoError(t, err)

	require.NoError(t, conn.Close())
	cancel()
	require.NoError(t, <-served)
}

// With SPIFFE IDs too nobody gets a certificate by which it would be somebody else, or nobody.
func TestSPIFFEIDsThatAreNotGivenAway(t *testing.T) {
	t.Parallel()
	const prefix = "spiffe://hub.test/agent/"
	table, err := identity.ParseTable(map[string]string{"paris": "spiffe://paris.mesh.test/agent", "rome": prefix + "milan", "oslo": prefix + "oslo"})
	require.NoError(t, err)
	var o *office
	o = newOfficeOf(t, signs(func(_ context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
		return o.ca.SignClient(pki.ClientOptions{CommonName: string(agent), SPIFFEID: prefix + string(agent)}, request.Key)
	}), identity.Options{
		Auth: prefix + "{agent}", Components: identity.Components{prefix + "kubeproxy": {"kube"}}, Table: func() identity.Table { return table },
	})
	for name, want := range map[string]string{
		"berlin":    "",
		"oslo":      "",
		"paris":     "is not one of those that the hub's table has for agent paris",
		"milan":     "by --auth the principal would take it for another's",
		"kubeproxy": "by --auth the principal would take it for another's",
	} {
		answer, err := o.enroll("192.0.2.1", o.token(identity.Agent(name)), csrOf(t, name))
		if want == "" {
			require.NoError(t, err, name)
			require.NotEmpty(t, answer.GetCertificate())
			continue
		}
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		require.ErrorContains(t, err, want)
	}
}

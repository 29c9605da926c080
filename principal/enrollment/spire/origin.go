package spire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	svidv1 "github.com/spiffe/spire-api-sdk/proto/spire/api/server/svid/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/hostname"
)

const (
	// requestTimeout is how long the server may take.
	requestTimeout = 20 * time.Second
	// firstRetry and lastRetry are between attempts that fail.
	firstRetry, lastRetry = time.Second, 30 * time.Second
	// settle is how long at least a CA is kept: one that is old when it is issued does not make the principal ask all the time.
	settle = 5 * time.Second
	// maxAnswer is how many bytes an answer may have, with the CAs of the trust domain in it, and maxChain how many certificates.
	maxAnswer, maxChain = 256 << 10, 8
	// probe is an agent's name, to see what a certificate by a CA would be good for.
	probe = "agent"
)

// origin is a certs.Origin: the intermediate CA that the SPIRE server gives to the principal.
type origin struct{ Options }

func (o origin) String() string { return "intermediate CA of the SPIRE server at " + o.Server }

// intermediate is an intermediate CA.
type intermediate struct {
	blocks  certs.Blocks
	pair    tls.Certificate
	renewAt time.Time
}

// Watch gets a CA, and another one when half of its life is over, or when its root has left the trust domain's bundle. While there is none,
// it asks again.
func (o origin) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	if o.Certificates.Wait(ctx) != nil {
		return nil //nolint:nilerr // they say themselves what is missing
	}
	var (
		held  intermediate
		next  request // the same for all attempts: errors of two of them have then the same text
		retry = firstRetry
	)
	for {
		changed, pause := o.Certificates.Changed(), time.Until(held.renewAt)
		if pause <= 0 || o.check(held.pair) != nil {
			got, err := o.fetch(ctx, &next)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // it was told to end
			}
			report(got.blocks, err)
			if err == nil {
				held, next, pause, retry = got, request{}, max(settle, time.Until(got.renewAt)), firstRetry
			} else {
				changed, pause, retry = nil, retry, min(2*retry, lastRetry)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// request is a request for a CA, and its key.
type request struct{ csr, key []byte }

// fetch asks for a CA, with a new key if there is no request yet.
func (o origin) fetch(ctx context.Context, r *request) (intermediate, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	self, err := o.self()
	if err != nil {
		return intermediate{}, err
	}
	if _, err := o.holder(self.TrustDomain(), probe); err != nil {
		return intermediate{}, err
	}
	if r.csr == nil {
		if r.csr, r.key, err = pki.NewRequest(pki.KeyKind{}, "argocd-agent-principal"); err != nil {
			return intermediate{}, err
		}
	}
	chain, err := o.ask(ctx, self, r.csr)
	if err != nil {
		return intermediate{}, err
	}
	got, err := o.read(chain, r.key)
	if err != nil {
		return intermediate{}, fmt.Errorf("its answer: %w", err)
	}
	return got, nil
}

// self is the principal's own SPIFFE ID.
func (o origin) self() (spiffeid.ID, error) {
	material, err := o.Certificates.Current()
	if err == nil && material.Certificate == nil {
		err = errors.New("there is none")
	}
	if err != nil {
		return spiffeid.ID{}, err
	}
	id, err := x509svid.IDFromCert(material.Certificate.Leaf)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("the principal's own certificate is no X.509-SVID: %w: have it come from the SPIFFE Workload API", err)
	}
	return id, nil
}

// ask returns what the server answers to a request of the principal. The server proves to be that of the principal's trust domain.
func (o origin) ask(ctx context.Context, self spiffeid.ID, csr []byte) ([][]byte, error) {
	server, err := spiffeid.FromSegments(self.TrustDomain(), "spire", "server")
	if err != nil {
		return nil, err
	}
	secure := certs.ClientCredentials(certs.ClientOptions{Source: o.Certificates, Policy: o.Policy, Server: func(presented []*x509.Certificate) error {
		if id, err := x509svid.IDFromCert(presented[0]); err != nil || id != server {
			return fmt.Errorf("its SPIFFE ID is not %s", server)
		}
		return nil
	}})
	conn, err := grpc.NewClient(o.Server, append(append(hostname.DialOptions(),
		grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	), o.Dial...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // it only ever says that it was closed before
	// A CA that is renewed at half of its life has then as much left as certificates are to last.
	ttl := int32(min(2*(o.Lifetime/time.Second), math.MaxInt32)) //nolint:gosec // it fits
	answer, err := svidv1.NewSVIDClient(conn).NewDownstreamX509CA(ctx, &svidv1.NewDownstreamX509CARequest{Csr: csr, PreferredTtl: ttl})
	if err != nil {
		return nil, explain(err, self)
	}
	return answer.GetCaCertChain(), nil // its root is that of the bundle, whatever else the answer says
}

// explain says what to do about an error of the server.
func explain(err error, self spiffeid.ID) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.PermissionDenied:
		return fmt.Errorf("%.1024q: it gives a CA only to those whose registration entry says so: create the entry of %s with -downstream", s.Message(), self)
	case codes.Unavailable, codes.DeadlineExceeded:
		if strings.Contains(s.Message(), "server certificate") { // it is there, and not the one
			return fmt.Errorf("%s: --signer-spire-server has to be the address of the SPIRE server of the trust domain %s", s.Message(), self.TrustDomain())
		}
		return fmt.Errorf("%w: %s: see whether the SPIRE server runs, and whether its API is where --signer-spire-server says", certs.ErrSilent, s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%.1024q: what answers there is not the API of a SPIRE server for its agents: see --signer-spire-server", s.Message())
	default:
		return fmt.Errorf("%.1024q: see the log of the SPIRE server", s.Message()) // which wrote it
	}
}

// read returns the CA in an answer, if agents' certificates by it would be accepted.
func (o origin) read(chain [][]byte, key []byte) (intermediate, error) {
	if len(chain) == 0 || len(chain) > maxChain {
		return intermediate{}, fmt.Errorf("it has %d certificates: want 1 to %d", len(chain), maxChain)
	}
	got := intermediate{blocks: certs.Blocks{Key: key}}
	for _, der := range chain {
		got.blocks.Certificate = append(got.blocks.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	if _, err := certs.ParseCertificates(got.blocks.Certificate); err != nil {
		return intermediate{}, err
	}
	var err error
	if got.pair, err = (pki.Pair{Certificate: got.blocks.Certificate, Key: key}).TLS(); err != nil {
		return intermediate{}, err
	}
	if err := o.check(got.pair); err != nil {
		return intermediate{}, err
	}
	got.renewAt = time.Now().Add(time.Until(got.pair.Leaf.NotAfter) / 2)
	return got, nil
}

// check returns nil if a CA is one of the principal's trust domain, and if the principal would accept agents' certificates by it now. It issues
// one to see that: which constraints are on the CA, and on those above it, is for who verifies it to say.
func (o origin) check(pair tls.Certificate) error {
	self, err := o.self()
	if err != nil {
		return err
	}
	ca, err := pki.CAOf(pair)
	if err != nil {
		return err
	}
	id, err := x509svid.IDFromCert(pair.Leaf)
	switch {
	case err != nil:
		return fmt.Errorf("CA: %w", err)
	case id != self.TrustDomain().ID():
		return fmt.Errorf("CA: it is that of %s, and the principal's trust domain is %s", id, self.TrustDomain())
	case !time.Now().Before(pair.Leaf.NotAfter): // no times in the errors: each attempt would have another one
		return errors.New("CA: it has ended already: compare the clocks")
	case time.Now().Before(pair.Leaf.NotBefore):
		return errors.New("CA: it has not begun yet: compare the clocks")
	}
	holder, err := o.holder(id.TrustDomain(), probe)
	if err != nil {
		return err
	}
	holder.Validity = ca.Lasting(o.Lifetime)
	issued, err := ca.IssueClient(holder)
	if err != nil {
		return err
	}
	presented, err := certs.ParseCertificates(append(issued.Certificate, ca.PEM().Certificate...))
	if err != nil {
		return err
	}
	if err := o.Certificates.VerifyClient(presented); err != nil {
		return fmt.Errorf("CA: certificates by it would not be accepted: %w", err)
	}
	return nil
}

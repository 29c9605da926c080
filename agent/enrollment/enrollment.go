// Package enrollment gets an agent its certificate of the principal: the first one for a token, and a newer one whenever two thirds of
// the life of the one before are over. It writes them to the Secret that the agent reads its certificate from.
package enrollment

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/hostname"
)

// Options configure an Enroller.
type Options struct {
	// Token is the enrollment token; nil for none.
	Token *enrolltoken.Token
	// Enroll and Renew are the principal's addresses, host:port: for agents without a certificate, and for those with one.
	Enroll, Renew string
	// Trusting secure connections to the first, by the CAs in Roots, which Run runs, and Proving those to the second.
	Trusting, Proving credentials.TransportCredentials
	Roots             *certs.Source
	// Dial are more options of connections to the principal.
	Dial []grpc.DialOption
	// Pair is the agent's certificate.
	Pair *certs.Source
	// Secrets is where it is kept, in the Secret of that name.
	Secrets    typed.SecretInterface
	SecretName string
	// RootsSecret is the Secret that Roots come from, and ServerID the principal's SPIFFE ID, by which the principal may replace them. If either
	// is zero it may not.
	RootsSecret string
	ServerID    spiffeid.ID
	Registerer  prometheus.Registerer
	Logger      *slog.Logger
}

// Enroller keeps an agent supplied with certificates.
type Enroller struct {
	options  Options
	requests *prometheus.CounterVec
	unusable string // why the principal's CAs of an answer were not taken, as it was logged last
}

const (
	// requestTimeout is how long the principal may take for one certificate.
	requestTimeout = 30 * time.Second
	// firstRetry and lastRetry are between attempts that fail.
	firstRetry, lastRetry = 2 * time.Second, 5 * time.Minute
	// maxAnswer is how many bytes an answer may have.
	maxAnswer = 64 << 10
	// rereadTimeout is how long the certificate that was written may take to be read, before another is asked for.
	rereadTimeout = 5 * time.Minute
	// settle is how long at least a new certificate is kept: one that is old when it is issued does not make the agent ask all the time.
	settle = 5 * time.Second
)

// New returns an Enroller.
func New(o Options) *Enroller {
	e := &Enroller{options: o, requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "argocd_agent_certificate_requests_total", Help: "Certificates that were asked for at the principal, by what for and what became of it.",
	}, []string{"by", "result"})}
	for _, by := range []string{"token", "certificate"} {
		for _, result := range []string{"issued", "failed"} {
			e.requests.WithLabelValues(by, result)
		}
	}
	o.Registerer.MustRegister(e.requests)
	return e
}

// Run gets certificates until the context ends. A nil Enroller gets none. It fails only when Roots do.
func (e *Enroller) Run(ctx context.Context) error {
	if e == nil {
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.options.Roots.Run(ctx) })
	group.Go(func() error {
		if e.options.Token != nil {
			e.enroll(ctx)
		}
		e.renew(ctx)
		return nil
	})
	return group.Wait()
}

// enroll exchanges the token for a certificate, unless there is a good one.
func (e *Enroller) enroll(ctx context.Context) {
	if e.options.Roots.Wait(ctx) != nil {
		return
	}
	name := string(e.options.Token.Agent)
	e.attempt(ctx, "token", func(ctx context.Context) (bool, error) {
		found, err := e.read(ctx)
		if err != nil {
			return false, err
		}
		if leaf := usable(found); leaf != nil {
			e.sayUnused(leaf)
			return false, nil
		}
		key, csr, err := e.prepare(ctx, found, name)
		if err != nil {
			return false, err
		}
		conn, err := grpc.NewClient(e.options.Enroll, dial(e.options.Trusting, e.options.Dial...)...)
		if err != nil {
			return false, err
		}
		defer func() { _ = conn.Close() }() // it only ever says that it was closed before
		from := new(peer.Peer)
		answer, err := enrollv1.NewEnrollmentClient(conn).Enroll(ctx, &enrollv1.EnrollRequest{Token: e.options.Token.Text(), Csr: csr}, grpc.Peer(from))
		if err != nil {
			return false, err
		}
		return true, e.keep(ctx, name, key, answer, from)
	})
}

// prepare returns the key to enroll with, and a request by it. The key is kept before the token is shown, and stays the same for all
// attempts: the token is good for one key, and the agent may end before it has the answer.
func (e *Enroller) prepare(ctx context.Context, found *corev1.Secret, name string) (key, csr []byte, err error) {
	key = found.Data[pendingKey]
	if csr, err = pki.RequestBy(key, name); err == nil {
		return key, csr, nil
	}
	if csr, key, err = pki.NewRequest(pki.KeyKind{}, name); err != nil {
		return nil, nil, err
	}
	if err := e.begin(ctx, found, key); err != nil {
		return nil, nil, fmt.Errorf("write the new key to Secret %s: %w", e.options.SecretName, err)
	}
	return key, csr, nil
}

// usable returns the certificate of a Secret if it is valid now, and otherwise nil.
func usable(s *corev1.Secret) *x509.Certificate {
	pair, err := pki.Pair{Certificate: s.Data[corev1.TLSCertKey], Key: s.Data[corev1.TLSPrivateKeyKey]}.TLS()
	if err != nil || !time.Now().Before(pair.Leaf.NotAfter) {
		return nil
	}
	return pair.Leaf
}

// sayUnused logs that the agent keeps a certificate that is good, and does not show its token. A token for another name is a mistake.
func (e *Enroller) sayUnused(leaf *x509.Certificate) {
	log := e.options.Logger.Info
	if leaf.Subject.CommonName != string(e.options.Token.Agent) {
		log = e.options.Logger.Warn
	}
	log("Enrollment token not used: there is a certificate that is valid; to enroll anew, delete the Secret and restart the agent",
		"secret", e.options.SecretName, "certificate_of", leaf.Subject.CommonName, "not_after", leaf.NotAfter.UTC().Format(time.RFC3339),
		"token_of", string(e.options.Token.Agent))
}

// renew asks for a newer certificate whenever it is time.
func (e *Enroller) renew(ctx context.Context) {
	for e.options.Pair.Wait(ctx) == nil {
		changed := e.options.Pair.Changed()
		material, err := e.options.Pair.Current()
		if err != nil || material.Certificate == nil {
			return
		}
		leaf := material.Certificate.Leaf
		timer := time.NewTimer(max(settle, time.Until(renewalTime(leaf.NotBefore, leaf.NotAfter))))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
			continue
		case <-timer.C:
		}
		renew := func(ctx context.Context) (bool, error) { return e.renewOnce(ctx, leaf.Subject.CommonName) }
		if e.attempt(ctx, "certificate", renew) {
			again := time.NewTimer(rereadTimeout)
			select { // the Secret is read again
			case <-changed:
			case <-again.C: // somebody else has written to it since
			case <-ctx.Done():
			}
			again.Stop()
		}
	}
}

// renewalTime is when two thirds of a certificate's life are over, less up to a tenth of its life at random: agents that enrolled together
// do not come together ever after.
func renewalTime(from, to time.Time) time.Time {
	life := to.Sub(from)
	return from.Add(life*2/3 - rand.N(life/10+1)) //nolint:gosec // it spreads load
}

// renewOnce asks for a certificate of the name that the agent has already.
func (e *Enroller) renewOnce(ctx context.Context, name string) (bool, error) {
	csr, key, err := pki.NewRequest(pki.KeyKind{}, name)
	if err != nil {
		return false, err
	}
	conn, err := grpc.NewClient(e.options.Renew, dial(e.options.Proving, e.options.Dial...)...)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // it only ever says that it was closed before
	from := new(peer.Peer)
	answer, err := enrollv1.NewRenewalClient(conn).Renew(ctx, &enrollv1.RenewRequest{Csr: csr}, grpc.Peer(from))
	if err != nil {
		return false, err
	}
	return true, e.keep(ctx, name, key, answer, from)
}

func dial(secure credentials.TransportCredentials, more ...grpc.DialOption) []grpc.DialOption {
	return append(append(hostname.DialOptions(),
		grpc.WithTransportCredentials(secure), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	), more...)
}

// keep writes a new certificate and its key to the Secret, if they belong together and it is of that name: what a principal sends is not
// believed. The principal's CAs come first: the agent connects anew when it has the certificate.
func (e *Enroller) keep(ctx context.Context, name string, key []byte, answer *enrollv1.IssueResponse, from *peer.Peer) error {
	pair := pki.Pair{Certificate: answer.GetCertificate(), Key: key}
	loaded, err := pair.TLS()
	if err != nil {
		return fmt.Errorf("the principal's answer: %w", err)
	}
	switch leaf, now := loaded.Leaf, time.Now(); {
	case leaf.IsCA:
		return errors.New("the principal's answer: its certificate is one of a CA")
	case leaf.Subject.CommonName != name:
		return fmt.Errorf("the principal's answer: its certificate is of %q, not of %q", leaf.Subject.CommonName, name)
	case !now.Before(leaf.NotAfter):
		return fmt.Errorf("the principal's answer: its certificate ended at %s: compare the clocks", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the principal's answer: its certificate begins at %s: compare the clocks", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if err := e.trust(ctx, answer.GetRoots(), from); err != nil {
		return fmt.Errorf("write the principal's CAs to Secret %s: %w", e.options.RootsSecret, err)
	}
	data := map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key, pendingKey: nil}
	if err := e.write(ctx, data); err != nil {
		return fmt.Errorf("write the new certificate to Secret %s: %w", e.options.SecretName, err)
	}
	return nil
}

// attempt does something until it works, and reports whether it got a certificate before the context ended. Each reason for a failure is
// logged once.
func (e *Enroller) attempt(ctx context.Context, by string, do func(context.Context) (issued bool, err error)) bool {
	var said string
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		request, cancel := context.WithTimeout(ctx, requestTimeout)
		issued, err := do(request)
		cancel()
		switch {
		case err == nil && issued:
			e.requests.WithLabelValues(by, "issued").Inc()
			e.options.Logger.Info("Certificate issued by the principal", "by", by, "secret", e.options.SecretName)
			return true
		case err == nil, ctx.Err() != nil:
			return false
		}
		e.requests.WithLabelValues(by, "failed").Inc()
		if reason := explain(err).Error(); reason != said {
			said = reason
			e.options.Logger.Warn("Failed to get a certificate of the principal; retrying", "by", by, "error", reason)
		}
		timer := time.NewTimer(delay/2 + rand.N(delay/2)) //nolint:gosec // it spreads load
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// errNoSigner means that the principal issues no certificates.
var errNoSigner = errors.New("the principal issues no certificates: set its --signer, or have certificates renewed otherwise")

// explain returns what an error of the principal means.
func explain(err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case s.Code() == codes.Unimplemented:
		return errNoSigner
	default:
		return fmt.Errorf("%.1024q", s.Message()) // the principal wrote it
	}
}

// Package enrollment gives agents their certificates: the first one for a token, and later ones for the certificate before. Whoever asks
// chooses nothing but the key: the name is that of the token or of the connection's certificate, a request for more than that name is refused,
// and the signer decides the rest.
package enrollment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
)

// Options configure a Service.
type Options struct {
	Signer Signer
	Tokens Tokens
	// Authn authenticates agents that renew.
	Authn *authn.Authenticator
	// Identify and Trust say whom a certificate names, and whether its holder would be admitted. What would not be is not given away.
	Identify *identity.Authenticator
	Trust    identity.Trust
	// Refuses says why an agent is refused whatever its certificate. It need not use up its token to learn that.
	Refuses func(identity.Agent) error
	// Roots returns the CAs of the principal's certificate as PEM, for agents to trust from now on, if it is nobody's task to bring them
	// there. It may be nil, as what it returns.
	Roots func() []byte
	// Ready waits until it is known who is refused.
	Ready      func(ctx context.Context) error
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Service implements the gRPC services Enrollment and Renewal.
type Service struct {
	enrollv1.UnimplementedEnrollmentServer
	enrollv1.UnimplementedRenewalServer

	options  Options
	issued   *prometheus.CounterVec
	refusals *rate.Limiter // of their log

	all       *rate.Limiter // of requests to enroll
	mu        sync.Mutex
	addresses map[netip.Addr]*rate.Limiter // of those from one network. Guarded by mu
	renewals  map[identity.Agent]*rate.Limiter
}

// How often certificates may be asked for. An agent needs one a day; each costs requests to the API server, and a signature.
const (
	enrollmentsPerSecond, enrollmentsBurst = 20, 100
	perAddressEvery, perAddressBurst       = 2 * time.Second, 20
	perAgentEvery, perAgentBurst           = 10 * time.Second, 10
	maxLimiters                            = 10_000
	// issueTimeout is how long one request may take.
	issueTimeout = 20 * time.Second
)

// New returns a service.
func New(o Options) *Service {
	s := &Service{
		options: o, all: rate.NewLimiter(enrollmentsPerSecond, enrollmentsBurst), refusals: logging.NewLimiter(),
		addresses: make(map[netip.Addr]*rate.Limiter), renewals: make(map[identity.Agent]*rate.Limiter),
		issued: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argocd_principal_agent_certificates_total", Help: "Requests of agents for certificates, by how they asked and what became of it.",
		}, []string{"by", "result"}),
	}
	for _, by := range []string{byToken, byCertificate} {
		for _, result := range []string{"issued", "refused", "failed"} {
			s.issued.WithLabelValues(by, result)
		}
	}
	o.Registerer.MustRegister(s.issued)
	return s
}

// How a certificate was asked for.
const (
	byToken       = "token"
	byCertificate = "certificate"
)

// Enroll implements enrollv1.EnrollmentServer.
func (s *Service) Enroll(ctx context.Context, r *enrollv1.EnrollRequest) (*enrollv1.IssueResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	address, network := origin(ctx)
	logger := s.options.Logger.With("address", address)
	if !limiter(s, s.addresses, network, perAddressEvery, perAddressBurst).Allow() || !s.all.Allow() {
		return s.answer(byToken, logger, nil, refuse(codes.ResourceExhausted, "too many requests to enroll: try again later"))
	}
	token, err := enrolltoken.Parse(r.GetToken())
	if err != nil {
		return s.answer(byToken, logger, nil, refuse(codes.Unauthenticated, "%v", err))
	}
	logger = logger.With("agent", string(token.Agent))
	request, raw, err := requestOf(token.Agent, r.GetCsr()) // before the token is used up
	if err != nil {
		return s.answer(byToken, logger, nil, err)
	}
	if err := s.options.Ready(ctx); err != nil {
		return s.answer(byToken, logger, nil, refuse(codes.Unavailable, "the principal is not ready"))
	}
	if err := s.options.Tokens.Redeem(ctx, token, raw, func() error { return wouldBeRefused(token.Agent, s.options.Refuses(token.Agent)) }); err != nil {
		return s.answer(byToken, logger, nil, err)
	}
	certificate, err := s.issue(ctx, token.Agent, request)
	return s.answer(byToken, logger, certificate, err)
}

// Renew implements enrollv1.RenewalServer.
func (s *Service) Renew(ctx context.Context, r *enrollv1.RenewRequest) (*enrollv1.IssueResponse, error) {
	ctx, grant, err := s.options.Authn.Agent(ctx)
	if err != nil {
		s.issued.WithLabelValues(byCertificate, "refused").Inc() // it was logged
		return nil, err
	}
	defer grant.End()
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	logger := s.options.Logger.With("agent", string(grant.Agent), "address", grant.Address)
	if grant.Method != identity.MTLS {
		return s.answer(byCertificate, logger, nil, refuse(codes.FailedPrecondition, "who comes by a proxy has its certificate from there"))
	}
	if !limiter(s, s.renewals, grant.Agent, perAgentEvery, perAgentBurst).Allow() {
		return s.answer(byCertificate, logger, nil, refuse(codes.ResourceExhausted, "too many renewals: try again later"))
	}
	request, _, err := requestOf(grant.Agent, r.GetCsr())
	if err != nil {
		return s.answer(byCertificate, logger, nil, err)
	}
	certificate, err := s.issue(ctx, grant.Agent, request)
	return s.answer(byCertificate, logger, certificate, err)
}

// requestOf reads an agent's request for a certificate, and returns the DER form of its key too.
func requestOf(agent identity.Agent, der []byte) (request pki.Request, key []byte, err error) {
	if request, err = pki.ParseRequest(der); err == nil {
		err = request.NamesOnly(string(agent))
	}
	if err == nil {
		key, err = request.Key.Raw()
	}
	if err != nil {
		return pki.Request{}, nil, refuse(codes.InvalidArgument, "%v", err)
	}
	return request, key, nil
}

// issue has a certificate signed, and gives it away only if its holder would be admitted as that agent and as nobody else: so whoever is
// blocked gets none, and no setting of --auth makes it somebody else's.
func (s *Service) issue(ctx context.Context, agent identity.Agent, request pki.Request) ([]byte, error) {
	text, err := s.options.Signer.Sign(ctx, agent, request)
	if err != nil {
		return nil, fmt.Errorf("signer: %w", err)
	}
	chain, err := leafOf(text)
	if err == nil && !request.Key.Is(chain[0].PublicKey) {
		err = errors.New("it is for another key than was asked for")
	}
	if err != nil {
		return nil, fmt.Errorf("signer: its certificate: %w", err)
	}
	proof := identity.Certified(chain)
	named, err := s.options.Identify.AgentOf(proof)
	switch {
	case err != nil:
		return nil, refuse(codes.PermissionDenied, "no certificate for agent %s: by --auth the principal would not know it: %v", agent, err)
	case named != agent || s.options.Identify.ComponentOf(proof) != "":
		return nil, refuse(codes.PermissionDenied, "no certificate for agent %s: by --auth the principal would take it for another's", agent)
	}
	if err := wouldBeRefused(agent, s.options.Trust.Verify(identity.Peer{Proof: proof, Agent: agent})); err != nil {
		return nil, err
	}
	return text, nil
}

// wouldBeRefused is the refusal of a certificate that would be of no use, for a reason; nil if there is none.
func wouldBeRefused(agent identity.Agent, reason error) error {
	if reason == nil {
		return nil
	}
	return refuse(codes.PermissionDenied, "no certificate for agent %s: its holder would be refused: %v", agent, reason)
}

// answer counts and logs what becomes of a request. A refusal is for the caller; of any other error it learns no more than that.
func (s *Service) answer(by string, logger *slog.Logger, certificate []byte, err error) (*enrollv1.IssueResponse, error) {
	if err == nil {
		chain, _ := leafOf(certificate) // it was read before
		s.issued.WithLabelValues(by, "issued").Inc()
		logger.Info("Issued certificate", "by", by, "not_after", chain[0].NotAfter.UTC().Format(time.RFC3339),
			"sha256", identity.Certified(chain).Fingerprint)
		answer := &enrollv1.IssueResponse{Certificate: certificate}
		if s.options.Roots != nil {
			answer.Roots = s.options.Roots()
		}
		return answer, nil
	}
	if refused := new(refusal); errors.As(err, &refused) {
		s.issued.WithLabelValues(by, "refused").Inc()
		if s.refusals.Allow() {
			logger.Warn("Refused certificate", "by", by, "reason", err)
		}
		return nil, status.Error(refused.code, refused.text)
	}
	s.issued.WithLabelValues(by, "failed").Inc()
	if s.refusals.Allow() {
		logger.Error("Failed to issue certificate", "by", by, "error", err)
	}
	return nil, status.Error(codes.Unavailable, "the principal cannot issue certificates now: its log says why")
}

// origin returns where a request comes from, and the network whose requests count together.
func origin(ctx context.Context) (address string, network netip.Addr) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", netip.Addr{}
	}
	return p.Addr.String(), connlimit.NetworkOf(p.Addr)
}

// limiter returns the limiter of one key.
func limiter[K comparable](s *Service, limiters map[K]*rate.Limiter, key K, every time.Duration, burst int) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if limiters[key] == nil {
		if len(limiters) >= maxLimiters {
			clear(limiters)
		}
		limiters[key] = rate.NewLimiter(rate.Every(every), burst)
	}
	return limiters[key]
}

var (
	_ enrollv1.EnrollmentServer = (*Service)(nil)
	_ enrollv1.RenewalServer    = (*Service)(nil)
)

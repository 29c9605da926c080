package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"

	enrollv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/enroll/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/ops"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment/spire"
)

// enrollmentSettings are what an operator decides about certificates that the principal issues.
type enrollmentSettings struct {
	signer, caNamespace string
	issuer              enrollment.Issuer
	spireServer         string
	lifetime            time.Duration
	port                int
}

// The signers, and where the one with a Secret has its key.
const (
	signerCASecret    = "ca-secret"
	signerCertManager = "cert-manager"
	signerSPIRE       = "spire"
	signerSecret      = "argocd-agent-ca"
	signerSuffix      = "-agent-ca"
)

// shortestLifetime leaves an agent time to renew.
const shortestLifetime = 30 * time.Second

// declareEnrollment declares the settings.
func (s *principalSettings) declareEnrollment(set *settings.Set) {
	e := &s.enrollment
	set.String(&e.signer, "signer", "ARGOCD_PRINCIPAL_SIGNER", "",
		"what issues agents' certificates: ca-secret, by the CA's private key in the Secret argocd-agent-ca; cert-manager, by the issuer in "+
			"--signer-issuer; or spire, by an intermediate CA of the SPIRE server in --signer-spire-server; if empty, the principal issues none",
		settings.OneOf("", signerCASecret, signerCertManager, signerSPIRE))
	set.String(&e.caNamespace, "signer-ca-namespace", "ARGOCD_PRINCIPAL_SIGNER_CA_NAMESPACE", "",
		"namespace of that Secret, or of the CertificateRequests and their Issuer; that of --namespace with -agent-ca if empty", settings.DNSLabel)
	var issuer string
	set.String(&issuer, "signer-issuer", "ARGOCD_PRINCIPAL_SIGNER_ISSUER", "",
		"with --signer=cert-manager, the issuer, as NAME, KIND/NAME or KIND.GROUP/NAME; the kind is Issuer if there is none",
		func(text string) error {
			if text == "" {
				return nil
			}
			var err error
			e.issuer, err = enrollment.ParseIssuer(text)
			return err
		})
	set.String(&e.spireServer, "signer-spire-server", "ARGOCD_PRINCIPAL_SIGNER_SPIRE_SERVER", "",
		"with --signer=spire, the address of the SPIRE server's API, as HOST:PORT; the principal's registration entry has to be -downstream",
		func(address string) error {
			if address == "" {
				return nil
			}
			return settings.HostPort(address)
		})
	set.Duration(&e.lifetime, "certificate-lifetime", "ARGOCD_PRINCIPAL_CERTIFICATE_LIFETIME", 24*time.Hour,
		"how long the certificates are valid that the principal issues; at least 30s", settings.AtLeast(shortestLifetime))
	set.Int(&e.port, "enrollment-port", "ARGOCD_PRINCIPAL_ENROLLMENT_PORT", 0,
		"port on which agents without a certificate get one for an enrollment token; 0 for none", settings.PortOrOff)
	set.Rule(func() error {
		if e.port != 0 && e.signer == "" {
			return errors.New("who enrolls needs a certificate: set --signer too")
		}
		return nil
	}, "enrollment-port", "signer")
	set.Rule(func() error {
		if (issuer != "") != (e.signer == signerCertManager) {
			return errors.New("an issuer is for --signer=cert-manager, which needs one: set both or neither")
		}
		return nil
	}, "signer-issuer", "signer")
	set.Rule(func() error {
		if (e.spireServer != "") != (e.signer == signerSPIRE) {
			return errors.New("a SPIRE server is for --signer=spire, which needs one: set both or neither")
		}
		return nil
	}, "signer-spire-server", "signer")
	set.Rule(s.checkSigner, "signer", "auth", "insecure-plaintext", "spiffe-endpoint-socket")
}

// checkSigner refuses a signer whose certificates would name nobody that the principal knows, or that cannot work.
func (s *principalSettings) checkSigner() error {
	switch {
	case s.enrollment.signer == "":
		return nil
	case s.proxies.Local:
		return errors.New("with --insecure-plaintext the sidecar has the certificates: set one of the two")
	case s.enrollment.signer == signerSPIRE:
		return s.checkSPIRE()
	case !strings.HasPrefix(s.auth, "mtls:") || strings.HasPrefix(s.auth, "mtls:uri:"):
		return errors.New("the certificates that it issues name agents by their common names: set --auth to mtls:subject, or --signer to spire")
	}
	return nil
}

// checkSPIRE refuses what does not go with SPIRE as the signer.
func (s *principalSettings) checkSPIRE() error {
	if !s.tls.FromWorkload() {
		return errors.New("SPIRE knows the principal by its X.509-SVID, and the principal its agents by the trust bundle: set --spiffe-endpoint-socket, and no " +
			"--tls-cert, --tls-key and --root-ca-path")
	}
	templates, err := identity.ParseAgentTemplates(s.auth, s.trustDomain)
	if err != nil {
		return nil //nolint:nilerr // the rule of --auth says so
	}
	for _, template := range templates {
		if _, one := template.TrustDomain(); one {
			return nil
		}
	}
	return errors.New("the certificates have SPIFFE IDs of the SPIRE server's trust domain: set --auth to a form of them with {agent} in the path, such as " +
		"spiffe://hub.example/agent/{agent}")
}

// issuer issues certificates. The zero one issues none.
type issuer struct {
	service     *enrollment.Service
	spire       *spire.Signer           // nil if another one signs
	certManager *enrollment.CertManager // nil if another one signs
}

// issuer returns what issues certificates.
func (s *principalSettings) issuer(cluster kube.Cluster, e *entrance, registry prometheus.Registerer, logger *slog.Logger) (issuer, error) {
	if s.enrollment.signer == "" {
		return issuer{}, nil
	}
	logger = logging.Component(logger, "enrollment")
	options := enrollment.Options{
		Tokens: enrollment.Tokens{Client: cluster.Client.CoreV1(), Namespace: s.namespace},
		Authn:  e.authn, Identify: e.identify, Trust: e.admission, Refuses: e.admission.Refuses, Ready: e.isReady, Registerer: registry, Logger: logger,
	}
	var made issuer
	var err error
	switch s.enrollment.signer {
	case signerCASecret:
		options.Signer = enrollment.CASecret{Client: cluster.Client.CoreV1(), Namespace: s.signerNamespace(), Name: signerSecret, Lifetime: s.enrollment.lifetime}
	case signerCertManager:
		made.certManager, err = s.certManager(cluster, logger)
		options.Signer = made.certManager
	case signerSPIRE:
		made.spire, err = s.spireSigner(e, logger)
		options.Signer = made.spire
	}
	if err != nil {
		return issuer{}, err
	}
	if made.spire != nil {
		options.Roots = made.spire.Roots
	}
	made.service = enrollment.New(options)
	return made, nil
}

// signerNamespace is where a signer has its Secret or its requests.
func (s *principalSettings) signerNamespace() string {
	return cmp.Or(s.enrollment.caNamespace, s.namespace+signerSuffix)
}

// certManager returns the signer by cert-manager.
func (s *principalSettings) certManager(cluster kube.Cluster, logger *slog.Logger) (*enrollment.CertManager, error) {
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return nil, fmt.Errorf("client of cert-manager's API: %w", err)
	}
	return &enrollment.CertManager{
		Client: client, Namespace: s.signerNamespace(), Issuer: s.enrollment.issuer, Lifetime: s.enrollment.lifetime, Logger: logger,
	}, nil
}

// spireSigner returns the signer by SPIRE.
func (s *principalSettings) spireSigner(e *entrance, logger *slog.Logger) (*spire.Signer, error) {
	templates, err := identity.ParseAgentTemplates(s.auth, s.trustDomain)
	if err != nil {
		return nil, err
	}
	return spire.New(spire.Options{
		Server: s.enrollment.spireServer, Certificates: e.certificates, Policy: s.policy, Templates: templates, Lifetime: s.enrollment.lifetime,
		Metrics: e.metrics, Logger: logger,
	})
}

// run keeps the signer ready until the context ends.
func (i issuer) run(ctx context.Context) error {
	switch {
	case i.spire != nil:
		return i.spire.Run(ctx)
	case i.certManager != nil:
		i.certManager.CleanUp(ctx)
	}
	return nil
}

// ready is that of the signer.
func (i issuer) ready() []ops.Check {
	if i.spire == nil {
		return nil
	}
	return []ops.Check{ops.When("signer", i.spire.Ready)}
}

// register registers the service by which agents renew, if there is one.
func (i issuer) register(r grpc.ServiceRegistrar) {
	if i.service != nil {
		enrollv1.RegisterRenewalServer(r, i.service)
	}
}

// enroll serves agents that enroll until the context ends.
func (s *principalSettings) enroll(ctx context.Context, i issuer, source *certs.Source, logger *slog.Logger) error {
	if s.enrollment.port == 0 {
		return nil
	}
	secure := certs.ServerCredentials(certs.ServerOptions{Source: source, Policy: s.policy, ClientCertOptional: true})
	return i.service.Serve(ctx, net.JoinHostPort(s.listenHost, strconv.Itoa(s.enrollment.port)), secure, logging.Component(logger, "enrollment"))
}

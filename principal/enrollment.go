package main

import (
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
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/enrollment"
)

// enrollmentSettings are what an operator decides about certificates that the principal issues.
type enrollmentSettings struct {
	signer, caNamespace string
	issuer              enrollment.Issuer
	lifetime            time.Duration
	port                int
}

// The signers, and where the one with a Secret has its key.
const (
	signerCASecret    = "ca-secret"
	signerCertManager = "cert-manager"
	signerSecret      = "argocd-agent-ca"
	signerSuffix      = "-agent-ca"
)

// shortestLifetime leaves an agent time to renew.
const shortestLifetime = 30 * time.Second

// declareEnrollment declares the settings.
func (s *principalSettings) declareEnrollment(set *settings.Set) {
	e := &s.enrollment
	set.String(&e.signer, "signer", "ARGOCD_PRINCIPAL_SIGNER", "",
		"what issues agents' certificates: ca-secret, by the CA's private key in the Secret argocd-agent-ca; or cert-manager, by the issuer in "+
			"--signer-issuer; if empty, the principal issues none", settings.OneOf("", signerCASecret, signerCertManager))
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
		switch {
		case e.signer == "":
			return nil
		case s.proxies.Local:
			return errors.New("with --insecure-plaintext the sidecar has the certificates: set one of the two")
		case !strings.HasPrefix(s.auth, "mtls:") || strings.HasPrefix(s.auth, "mtls:uri:"):
			return errors.New("the certificates that it issues name agents by their common names: set --auth to mtls:subject")
		}
		return nil
	}, "signer", "auth", "insecure-plaintext")
}

// issuer returns what issues certificates, nil if nothing does.
func (s *principalSettings) issuer(cluster kube.Cluster, e *entrance, registry prometheus.Registerer, logger *slog.Logger) (*enrollment.Service, error) {
	if s.enrollment.signer == "" {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	logger = logging.Component(logger, "enrollment")
	signer, err := s.newSigner(cluster, logger)
	if err != nil {
		return nil, err
	}
	return enrollment.New(enrollment.Options{
		Signer: signer, Tokens: enrollment.Tokens{Client: cluster.Client.CoreV1(), Namespace: s.namespace},
		Authn: e.authn, Identify: e.identify, Trust: e.admission, Refuses: e.admission.Refuses, Ready: e.isReady, Registerer: registry, Logger: logger,
	}), nil
}

// newSigner returns what signs certificates.
func (s *principalSettings) newSigner(cluster kube.Cluster, logger *slog.Logger) (enrollment.Signer, error) {
	namespace := s.enrollment.caNamespace
	if namespace == "" {
		namespace = s.namespace + signerSuffix
	}
	if s.enrollment.signer == signerCASecret {
		return enrollment.CASecret{Client: cluster.Client.CoreV1(), Namespace: namespace, Name: signerSecret, Lifetime: s.enrollment.lifetime}, nil
	}
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return nil, fmt.Errorf("client of cert-manager's API: %w", err)
	}
	return enrollment.CertManager{
		Client: client, Namespace: namespace, Issuer: s.enrollment.issuer, Lifetime: s.enrollment.lifetime, Logger: logger,
	}, nil
}

// withRenewal adds the service by which agents renew, if there is one.
func withRenewal(register func(grpc.ServiceRegistrar), issuer *enrollment.Service) func(grpc.ServiceRegistrar) {
	return func(r grpc.ServiceRegistrar) {
		register(r)
		if issuer != nil {
			enrollv1.RegisterRenewalServer(r, issuer)
		}
	}
}

// enroll serves agents that enroll until the context ends.
func (s *principalSettings) enroll(ctx context.Context, issuer *enrollment.Service, source *certs.Source, logger *slog.Logger) error {
	if s.enrollment.port == 0 {
		return nil
	}
	secure := certs.ServerCredentials(certs.ServerOptions{Source: source, Policy: s.policy, ClientCertOptional: true})
	return issuer.Serve(ctx, net.JoinHostPort(s.listenHost, strconv.Itoa(s.enrollment.port)), secure, logging.Component(logger, "enrollment"))
}

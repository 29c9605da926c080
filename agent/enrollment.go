package main

import (
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agent/enrollment"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/kube"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/enrolltoken"
)

// enrollmentSettings are what an operator decides about certificates that the principal issues.
type enrollmentSettings struct {
	token string
	port  int
	renew bool
}

// declareEnrollment declares the settings.
func (s *agentSettings) declareEnrollment(set *settings.Set) {
	e := &s.enrollment
	set.String(&e.token, "enrollment-token", "ARGOCD_AGENT_ENROLLMENT_TOKEN", "",
		"token of argocd-agentctl agent token create, for which the agent gets its first certificate; better given by the environment",
		func(text string) error {
			if text == "" {
				return nil
			}
			_, err := enrolltoken.Parse(text)
			return err
		})
	set.Int(&e.port, "enrollment-port", "ARGOCD_AGENT_ENROLLMENT_PORT", 8444, "the principal's port for agents that enroll", settings.Port)
	set.Bool(&e.renew, "renew-certificate", "ARGOCD_AGENT_RENEW_CERTIFICATE", false,
		"have the principal renew the certificate in the Secret when two thirds of its life are over; so it is with --enrollment-token")
	set.Rule(func() error {
		if (e.token != "" || e.renew) && (s.tls.PairSecret() == "" || !strings.HasPrefix(s.credentials, "mtls:")) {
			return errors.New("the certificate would be written to the Secret of --tls-secret-name, and the agent does not take it from there: set no other origin")
		}
		return nil
	}, "enrollment-token", "renew-certificate", "creds")
	set.Rule(func() error {
		if e.token != "" && s.insecureTLS {
			return errors.New("the token would go to anybody: trust the principal's CA instead of --insecure-tls")
		}
		return nil
	}, "enrollment-token", "insecure-tls")
}

// enroller returns what gets the agent its certificates, nil if they come from elsewhere.
func (s *agentSettings) enroller(cluster kube.Cluster, pair *certs.Source, metrics *certs.Metrics, registry *prometheus.Registry, logger *slog.Logger,
) (*enrollment.Enroller, error) {
	e := s.enrollment
	if e.token == "" && !e.renew {
		return nil, nil //nolint:nilnil // none is what was asked for
	}
	roots, err := s.tls.OnlyRoots().Source("agent-enrollment", s.secrets(cluster), logging.Component(logger, "certificates"), metrics)
	if err != nil {
		return nil, err
	}
	credentials := func(source *certs.Source) certs.ClientOptions {
		return certs.ClientOptions{Source: source, Policy: s.policy, ServerID: s.tls.ServerID(), InsecureSkipVerify: s.insecureTLS}
	}
	options := enrollment.Options{
		Enroll: net.JoinHostPort(s.serverAddress, strconv.Itoa(e.port)), Renew: net.JoinHostPort(s.serverAddress, strconv.Itoa(s.serverPort)),
		Trusting: certs.ClientCredentials(credentials(roots)), Proving: certs.ClientCredentials(credentials(pair)),
		Roots: roots, Pair: pair, Secrets: cluster.Client.CoreV1().Secrets(s.namespace), SecretName: s.tls.PairSecret(),
		Registerer: registry, Logger: logging.Component(logger, "enrollment"),
	}
	if !s.insecureTLS { // of whom it does not verify it takes no CAs
		options.RootsSecret, options.ServerID = s.tls.RootsSecret(), s.tls.ServerID()
	}
	if e.token != "" {
		token, err := enrolltoken.Parse(e.token)
		if err != nil {
			return nil, err
		}
		options.Token = &token
	}
	return enrollment.New(options), nil
}

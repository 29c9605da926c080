package ca

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/certificate"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/agentctl/cluster"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
)

// Report describes the hub's CA and its certificates.
type Report struct {
	Secret string             `json:"secret"`
	CAs    []certificate.Info `json:"cas"`
	// PrivateKey says whether the CA has its key. Without it no certificate can be issued.
	PrivateKey   bool    `json:"privateKey"`
	Certificates []Entry `json:"certificates"`
	// Problems are those of the CA.
	Problems []string `json:"problems"`
}

// Entry is one certificate.
type Entry struct {
	Secret      string            `json:"secret"`
	Certificate *certificate.Info `json:"certificate,omitempty"` // nil if it cannot be read
	Problems    []string          `json:"problems"`
	Missing     bool              `json:"-"` // there is no such Secret
}

// AddPEM adds the certificates themselves.
func (r *Report) AddPEM() {
	for i := range r.CAs {
		r.CAs[i].AddPEM()
	}
	for _, entry := range r.Certificates {
		if entry.Certificate != nil {
			entry.Certificate.AddPEM()
		}
	}
}

// Count returns how many problems there are.
func (r *Report) Count() int {
	n := len(r.Problems)
	for _, entry := range r.Certificates {
		n += len(entry.Problems)
	}
	return n
}

// Inspect describes the CA, which is in that place, and the hub's certificates, and their problems.
func Inspect(ctx context.Context, place, hub *cluster.Client) (Report, error) {
	found, err := get(ctx, place)
	if err != nil {
		return Report{}, err
	}
	report := Report{Secret: place.Namespace + "/" + SecretName, PrivateKey: len(found.Data[secret.PrivateKeyKey]) > 0, Problems: []string{}}
	trusted, err := ReadTrusted(found, place)
	if err != nil {
		return Report{}, err
	}
	for _, one := range trusted.Certificates {
		report.CAs = append(report.CAs, certificate.Describe(one))
		report.Problems = append(report.Problems, certificate.Dates(one, time.Now())...)
	}
	if _, err := load(found.Data); err != nil {
		report.Problems = append(report.Problems, err.Error())
	}
	if !place.Same(hub) {
		there, err := LoadTrusted(ctx, hub)
		if err != nil {
			return Report{}, err
		}
		for _, problem := range trusted.Differs(there) {
			report.Problems = append(report.Problems, there.Where+": "+problem)
		}
	}
	report.Certificates, err = Certificates(ctx, hub, trusted)
	return report, err
}

// Certificates describes the certificates that a hub should have, besides the CA's.
func Certificates(ctx context.Context, hub *cluster.Client, trusted Trusted) ([]Entry, error) {
	var all []Entry
	for _, wanted := range hubCertificates() {
		s, err := hub.Get(ctx, wanted.secret)
		if err != nil {
			return nil, err
		}
		if s != nil || !wanted.optional {
			all = append(all, wanted.entry(hub, s, trusted))
		}
	}
	return all, nil
}

// hubCertificate is a certificate that a hub should have.
type hubCertificate struct {
	secret   string
	as       x509.ExtKeyUsage
	command  string // makes it
	optional bool
}

func hubCertificates() []hubCertificate {
	all := []hubCertificate{
		{PrincipalSecret, x509.ExtKeyUsageServerAuth, "pki issue principal", false},
		{ResourceProxySecret, x509.ExtKeyUsageServerAuth, "pki issue resource-proxy", false},
		{RedisProxySecret, x509.ExtKeyUsageServerAuth, "pki issue redis-proxy", true},
	}
	for _, name := range Components() {
		all = append(all, hubCertificate{componentSecret(name), x509.ExtKeyUsageClientAuth, "pki issue component " + name, false})
	}
	return all
}

// entry describes the certificate in a Secret, which is nil if there is none.
func (w hubCertificate) entry(hub *cluster.Client, s *corev1.Secret, trusted Trusted) Entry {
	entry := Entry{Secret: hub.Namespace + "/" + w.secret}
	if s == nil {
		entry.Missing = true
		entry.Problems = []string{"not found: create it with: argocd-agentctl " + w.command}
		return entry
	}
	entry.Certificate, entry.Problems = Examine(s, trusted.Use(w.as))
	return entry
}

// Examine describes the certificate of a Secret, nil if it cannot be read, and its problems.
func Examine(s *corev1.Secret, use certificate.Use) (*certificate.Info, []string) {
	chain, err := ReadPair(s.Data)
	if err != nil {
		return nil, []string{fmt.Sprintf("it cannot be used: %v", err)}
	}
	about := certificate.Describe(chain[0])
	return &about, append([]string{}, use.Problems(chain, time.Now())...)
}

package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"time"
)

const day = 24 * time.Hour

// Use is what a certificate is meant for.
type Use struct {
	// As is what its holder does with it: x509.ExtKeyUsageServerAuth or x509.ExtKeyUsageClientAuth.
	As x509.ExtKeyUsage
	// CAs are those that the other side trusts, and Trusting says where these are, e.g. "Secret argocd/argocd-agent-ca".
	// Without any, who issued the certificate does not matter.
	CAs      []*x509.Certificate
	Trusting string
}

// Problems says what is wrong with a certificate for that use now. The chain begins with the certificate; others that are
// between it and a CA may follow.
func (u Use) Problems(chain []*x509.Certificate, now time.Time) []string {
	return append(Dates(chain[0], now), u.Trust(chain, now)...)
}

// Trust is Problems, the dates of the certificate itself aside.
func (u Use) Trust(chain []*x509.Certificate, now time.Time) []string {
	if err := u.verify(chain, now); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// Dates says what is wrong with a certificate by its dates: that it is not valid, or soon will not be.
func Dates(c *x509.Certificate, now time.Time) []string {
	switch left := c.NotAfter.Sub(now); {
	case left <= 0:
		return []string{fmt.Sprintf("it expired at %s: renew it", Stamp(c.NotAfter))}
	case now.Before(c.NotBefore):
		return []string{fmt.Sprintf("it is not valid before %s: compare the clocks", Stamp(c.NotBefore))}
	case left < c.NotAfter.Sub(c.NotBefore)/10:
		return []string{fmt.Sprintf("it expires at %s, in %s: renew it", Stamp(c.NotAfter), count(left))}
	default:
		return nil
	}
}

// count formats a duration in days, or in hours and minutes if it is short.
func count(left time.Duration) string {
	if left < 2*day {
		return left.Round(time.Minute).String()
	}
	return fmt.Sprintf("%d days", int(math.Floor(left.Hours()/day.Hours())))
}

func (u Use) verify(chain []*x509.Certificate, now time.Time) error {
	leaf := chain[0]
	if len(u.CAs) == 0 {
		return nil
	}
	options := x509.VerifyOptions{
		Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{u.As}, CurrentTime: within(leaf, now),
	}
	for _, issuer := range u.CAs {
		options.Roots.AddCert(issuer)
	}
	for _, between := range chain[1:] {
		options.Intermediates.AddCert(between)
	}
	_, err := leaf.Verify(options)
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return fmt.Errorf("it was issued by %s, which is none of the CAs in %s: issue it by one of those", leaf.Issuer, u.Trusting)
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return fmt.Errorf("it is not for %s: issue one that is", map[x509.ExtKeyUsage]string{
			x509.ExtKeyUsageServerAuth: "servers", x509.ExtKeyUsageClientAuth: "clients",
		}[u.As])
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && !options.CurrentTime.Equal(now):
		return nil // what is wrong is the certificate's own dates: the CA may have been renewed since
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("its CA %s is not valid at %s: renew the CA, and issue it again", leaf.Issuer, Stamp(options.CurrentTime))
	default:
		return err
	}
}

// within returns the time in a certificate's life that is nearest to now, so that its dates are reported only once.
func within(c *x509.Certificate, now time.Time) time.Time {
	switch {
	case now.After(c.NotAfter):
		return c.NotAfter
	case now.Before(c.NotBefore):
		return c.NotBefore
	default:
		return now
	}
}

// Covers says why a client that dials a host by that name, or IP address, would not accept a server's certificate.
func Covers(c *x509.Certificate, host string) error {
	if err := c.VerifyHostname(host); err != nil {
		return fmt.Errorf("it is for %s, not for %s", List(Names(c)), host)
	}
	return nil
}

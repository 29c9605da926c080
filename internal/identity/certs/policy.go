package certs

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// Policy bounds the TLS versions and cipher suites of a connection. The zero value means TLS 1.3 only.
type Policy struct {
	// MinVersion and MaxVersion are versions as in crypto/tls. Zero means TLS 1.3 and the newest.
	MinVersion uint16
	MaxVersion uint16
	// CipherSuites narrows those of TLS 1.2; those of TLS 1.3 are not for choosing. Nil means the secure ones.
	CipherSuites []uint16
}

// ParsePolicy reads versions such as "tls1.2" and the names of cipher suites. Empty values mean the defaults; a maximum
// below the default minimum lowers that minimum.
func ParsePolicy(minimum, maximum string, suites []string) (Policy, error) {
	var policy Policy
	var err error
	if policy.MaxVersion, err = parseVersion("maximum", maximum); err != nil {
		return Policy{}, err
	}
	if policy.MinVersion, err = parseVersion("minimum", minimum); err != nil {
		return Policy{}, err
	}
	if policy.MinVersion == 0 && policy.MaxVersion != 0 {
		policy.MinVersion = policy.MaxVersion
	}
	if policy.MaxVersion != 0 && policy.MinVersion > policy.MaxVersion {
		return Policy{}, fmt.Errorf("TLS versions: minimum %s is above maximum %s: raise the maximum or lower the minimum", minimum, maximum)
	}
	policy.CipherSuites, err = parseSuites(suites, policy.lowest())
	return policy, err
}

// Declare declares the settings of a policy. Their environment variables begin with the prefix, such as "ARGOCD_AGENT".
// oldest is the minimum version when nothing else is set.
func (p *Policy) Declare(set *settings.Set, prefix, oldest string) {
	var minimum, maximum string
	var suites []string
	set.String(&minimum, "tls-min-version", prefix+"_TLS_MIN_VERSION", oldest, "oldest TLS version to accept", checkVersion)
	set.String(&maximum, "tls-max-version", prefix+"_TLS_MAX_VERSION", "", "newest TLS version to accept", checkVersion)
	set.Strings(&suites, "tls-ciphersuites", prefix+"_TLS_CIPHERSUITES", nil, "cipher suites of TLS 1.2 to accept",
		settings.Each(settings.OneOf(cipherSuiteNames()...)))
	set.Rule(func() (err error) {
		*p, err = ParsePolicy(minimum, maximum, suites)
		return err
	}, "tls-min-version", "tls-max-version", "tls-ciphersuites")
}

// checkVersion accepts the versions that ParsePolicy does, each by itself, so that two bad ones are both reported.
func checkVersion(name string) error {
	_, err := ParsePolicy(name, "", nil)
	return err
}

// lowest is the minimum version in force.
func (p Policy) lowest() uint16 {
	if p.MinVersion == 0 {
		return tls.VersionTLS13
	}
	return p.MinVersion
}

// config returns a TLS configuration that holds to the policy.
func (p Policy) config() *tls.Config {
	return &tls.Config{MinVersion: p.lowest(), MaxVersion: p.MaxVersion, CipherSuites: p.CipherSuites}
}

// parseVersion knows no version before TLS 1.2: RFC 8996 forbids those.
func parseVersion(which, name string) (uint16, error) {
	switch strings.ToLower(name) {
	case "":
		return 0, nil
	case "tls1.2":
		return tls.VersionTLS12, nil
	case "tls1.3":
		return tls.VersionTLS13, nil
	default:
		return 0, fmt.Errorf("TLS versions: %s %q: unknown: use tls1.2 or tls1.3", which, name)
	}
}

// cipherSuiteNames lists the cipher suites that ParsePolicy knows: those without known weaknesses.
func cipherSuiteNames() []string {
	var names []string
	for _, suite := range tls.CipherSuites() {
		names = append(names, suite.Name)
	}
	return names
}

// parseSuites refuses a choice that would choose nothing for a version in force.
func parseSuites(names []string, lowest uint16) ([]uint16, error) {
	var suites []uint16
	for _, name := range names {
		at := slices.IndexFunc(tls.CipherSuites(), func(suite *tls.CipherSuite) bool { return suite.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("TLS cipher suite %q: unknown or insecure: use some of %s", name, strings.Join(cipherSuiteNames(), ", "))
		}
		suites = append(suites, tls.CipherSuites()[at].ID)
	}
	older := slices.ContainsFunc(tls.CipherSuites(), func(suite *tls.CipherSuite) bool {
		return slices.Contains(suites, suite.ID) && suite.SupportedVersions[0] < tls.VersionTLS13
	})
	switch {
	case len(suites) > 0 && older && lowest >= tls.VersionTLS13:
		return nil, fmt.Errorf("TLS cipher suites: TLS 1.3 has its own, so %s would have no effect: set the minimum version to tls1.2, or name no suites",
			strings.Join(names, ", "))
	case len(suites) > 0 && !older && lowest < tls.VersionTLS13:
		return nil, fmt.Errorf("TLS cipher suites: %s belong to TLS 1.3, which older versions cannot use: set the minimum version to tls1.3, or name suites for TLS 1.2 too",
			strings.Join(names, ", "))
	}
	return suites, nil
}

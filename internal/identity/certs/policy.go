package certs

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
)

// Policy bounds the TLS versions and cipher suites of a connection. The zero value means TLS 1.3 only.
type Policy struct {
	// MinVersion and MaxVersion are versions as in crypto/tls. Zero means TLS 1.3 and the newest.
	MinVersion uint16
	MaxVersion uint16
	// CipherSuites narrows those of TLS 1.2 and before; those of TLS 1.3 are not for choosing. Nil means the secure ones.
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

// CheckVersion accepts the versions that ParsePolicy does, each by itself, so that two that are wrong are both told.
func CheckVersion(name string) error {
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

func parseVersion(which, name string) (uint16, error) {
	switch strings.ToLower(name) {
	case "":
		return 0, nil
	case "tls1.1":
		return tls.VersionTLS11, nil
	case "tls1.2":
		return tls.VersionTLS12, nil
	case "tls1.3":
		return tls.VersionTLS13, nil
	default:
		return 0, fmt.Errorf("TLS versions: %s %q: unknown: use one of tls1.1, tls1.2, tls1.3", which, name)
	}
}

// CipherSuiteNames lists the cipher suites that ParsePolicy knows: those without known weaknesses.
func CipherSuiteNames() []string {
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
			return nil, fmt.Errorf("TLS cipher suite %q: unknown or insecure: use some of %s", name, strings.Join(CipherSuiteNames(), ", "))
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

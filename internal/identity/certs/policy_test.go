package certs_test

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

func TestParsePolicy(t *testing.T) {
	const older, newest = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"
	tests := map[string]struct {
		minimum, maximum string
		suites           []string
		want             certs.Policy
		problem          string
	}{
		"the default":                  {},
		"a range":                      {minimum: "tls1.2", maximum: "TLS1.3", want: certs.Policy{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}},
		"a maximum lowers the default": {maximum: "tls1.2", want: certs.Policy{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}},
		"suites":                       {minimum: "tls1.2", suites: []string{older, newest}, want: certs.Policy{MinVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_AES_128_GCM_SHA256}}},
		"suites of TLS 1.3":            {suites: []string{newest}, want: certs.Policy{CipherSuites: []uint16{tls.TLS_AES_128_GCM_SHA256}}},
		"an unknown version":           {minimum: "ssl3", problem: `minimum "ssl3": unknown: use tls1.2 or tls1.3`},
		"a version that is forbidden":  {minimum: "tls1.1", problem: `minimum "tls1.1": unknown: use tls1.2 or tls1.3`},
		"an unknown maximum":           {maximum: "1.3", problem: `maximum "1.3": unknown`},
		"an empty range":               {minimum: "tls1.3", maximum: "tls1.2", problem: "raise the maximum or lower the minimum"},
		"an unknown suite":             {minimum: "tls1.2", suites: []string{"ROT13"}, problem: "unknown or insecure: use some of TLS_AES_128_GCM_SHA256"},
		"an insecure suite":            {minimum: "tls1.2", suites: []string{"TLS_RSA_WITH_RC4_128_SHA"}, problem: "unknown or insecure"},
		"suites without effect":        {suites: []string{older}, problem: "set the minimum version to tls1.2"},
		"suites that miss the minimum": {minimum: "tls1.2", suites: []string{newest}, problem: "set the minimum version to tls1.3"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy, err := certs.ParsePolicy(test.minimum, test.maximum, test.suites)
			if test.problem != "" {
				require.ErrorContains(t, err, test.problem)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, policy)
		})
	}
}

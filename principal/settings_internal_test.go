package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// badValues are, for each flag that takes not just any text, values that are wrong, and what the error then says. The
// environment variable is empty where there is none.
func badValues() map[string]struct {
	variable, want string
	values         []string
} {
	return map[string]struct {
		variable, want string
		values         []string
	}{
		"kubeconfig":                {"", "want a file that can be read", []string{"/no/such/file"}},
		"namespace":                 {"ARGOCD_PRINCIPAL_NAMESPACE", "want", []string{"", "Argo", "a.b", "-a"}},
		"metrics-port":              {"ARGOCD_PRINCIPAL_METRICS_PORT", "want", []string{"-1", "65536", "http", "1.5"}},
		"healthz-port":              {"ARGOCD_PRINCIPAL_HEALTH_CHECK_PORT", "want", []string{"-1", "65536", "http"}},
		"pprof-port":                {"ARGOCD_PRINCIPAL_PPROF_PORT", "want", []string{"-1", "65536", "yes"}},
		"log-level":                 {"ARGOCD_PRINCIPAL_LOG_LEVEL", "want [component=]level", []string{"loud", "=info", "sync="}},
		"log-format":                {"ARGOCD_PRINCIPAL_LOG_FORMAT", "want one of text, json", []string{"xml", "JSON"}},
		"tls-secret-name":           {"ARGOCD_PRINCIPAL_TLS_SECRET_NAME", "want", []string{"", "a b", "A"}},
		"tls-min-version":           {"ARGOCD_PRINCIPAL_TLS_MIN_VERSION", "use one of tls1.1, tls1.2, tls1.3", []string{"1.2", "ssl3"}},
		"tls-max-version":           {"ARGOCD_PRINCIPAL_TLS_MAX_VERSION", "use one of tls1.1, tls1.2, tls1.3", []string{"1.2", "tls1.4"}},
		"tls-ciphersuites":          {"ARGOCD_PRINCIPAL_TLS_CIPHERSUITES", "want one of TLS_AES_128_GCM_SHA256", []string{"ROT13", "TLS_AES_128_GCM_SHA256,ROT13"}},
		"compare-interval":          {"ARGOCD_PRINCIPAL_COMPARE_INTERVAL", "want", []string{"0", "-1m", "5", "often"}},
		"listen-host":               {"ARGOCD_PRINCIPAL_LISTEN_HOST", "want a host name or an IP address, without a scheme and without a port", []string{"0.0.0.0:8443", "http://hub"}},
		"listen-port":               {"ARGOCD_PRINCIPAL_LISTEN_PORT", "want", []string{"0", "-1", "65536", "https"}},
		"allowed-namespaces":        {"ARGOCD_PRINCIPAL_ALLOWED_NAMESPACES", "want globs or /regular expressions/", []string{"[", "a,/(/"}},
		"destination-based-mapping": {"ARGOCD_PRINCIPAL_DESTINATION_BASED_MAPPING", "want true or false", []string{"perhaps"}},
		"label-selector":            {"ARGOCD_PRINCIPAL_LABEL_SELECTOR", "want a label selector", []string{"a=b=c", "in (", "!"}},
		"namespace-create-enable":   {"ARGOCD_PRINCIPAL_NAMESPACE_CREATE_ENABLE", "want true or false", []string{"perhaps"}},
		"namespace-create-pattern":  {"ARGOCD_PRINCIPAL_NAMESPACE_CREATE_PATTERN", "want a regular expression", []string{"("}},
		"namespace-create-labels":   {"ARGOCD_PRINCIPAL_NAMESPACE_CREATE_LABELS", "want", []string{"team", "a b=c", "team=x y"}},
		"auth":                      {"ARGOCD_PRINCIPAL_AUTH", "use for example", []string{"userpass:/etc/users", "header:x", "mtls:", "mtls:(", "mtls:subject:CN=.*", "oidc"}},
		"tls-ca-secret-name":        {"ARGOCD_PRINCIPAL_TLS_SERVER_ROOT_CA_SECRET_NAME", "want", []string{"", "a/b"}},
		"keepalive-min-interval":    {"ARGOCD_PRINCIPAL_KEEP_ALIVE_MIN_INTERVAL", "want", []string{"-1s", "5"}},
	}
}

// anyText are the flags of which no value can be told to be wrong without looking at what it names.
func anyText() []string {
	return []string{"kubecontext", "tls-cert", "tls-key", "root-ca-path", "hub-components"}
}

func TestEveryFlagWithABadValueSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for flag, c := range badValues() {
		for _, value := range c.values {
			t.Run(flag+"="+value, func(t *testing.T) {
				t.Parallel()
				_, err := readSettings([]string{"--" + flag + "=" + value}, nothing)
				requireNamed(t, err, flag, c.variable, c.want)
				if c.variable == "" || value == "" {
					return
				}
				_, err = readSettings(nil, func(name string) (string, bool) {
					if name == c.variable {
						return value, true
					}
					return "", false
				})
				requireNamed(t, err, flag, c.variable, c.want)
			})
		}
	}
}

// requireNamed fails unless an error names a setting by its flag and by its variable, and says what would be right.
func requireNamed(t *testing.T, err error, flag, variable, want string) {
	t.Helper()
	require.Error(t, err)
	require.ErrorContains(t, err, "--"+flag)
	require.ErrorContains(t, err, variable)
	require.ErrorContains(t, err, want)
}

// What would make the program busy with nothing else, or would turn off silently what was asked for, is not taken.
func TestIntervalsHaveALeast(t *testing.T) {
	t.Parallel()
	for flag, c := range leastIntervals() {
		for _, value := range c.bad {
			_, err := readSettings([]string{"--" + flag + "=" + value}, nothing)
			require.ErrorContains(t, err, "--"+flag, value)
			require.ErrorContains(t, err, c.want, value)
		}
		for _, value := range c.good {
			_, err := readSettings([]string{"--" + flag + "=" + value}, nothing)
			require.NoError(t, err, value)
		}
	}
}

type leastInterval struct {
	want      string
	bad, good []string
}

func leastIntervals() map[string]leastInterval {
	return map[string]leastInterval{
		"compare-interval": {"want at least 1s", []string{"1ns", "1ms", "999ms", "0", "-1s"}, []string{"1s", "5m"}},
	}
}

// The rules over several settings are asked whatever else is wrong.
func TestMistakesOfEveryKindAreToldTogether(t *testing.T) {
	t.Parallel()
	_, err := readSettings([]string{
		"--auth=mtls:(", "--tls-min-version=tls1.9", "--tls-max-version=ssl3", "--tls-ciphersuites=ROT13",
		"--log-level=foo=bar,baz", "--tls-cert=x", "--compare-interval=1ns", "--no-such-flag",
	}, nothing)
	for _, want := range []string{
		"--auth", `"tls1.9"`, `"ssl3"`, "ROT13", "--log-level", "--tls-cert or ARGOCD_PRINCIPAL_TLS_SERVER_CERT_PATH, --tls-key", "set both or neither",
		"--compare-interval", "--no-such-flag",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = readSettings([]string{"--log-format=xml", "--tls-min-version=tls1.3", "--tls-max-version=tls1.2"}, nothing)
	require.ErrorContains(t, err, "--log-format")
	require.ErrorContains(t, err, "raise the maximum or lower the minimum")
}

// So that a new flag is not forgotten here.
func TestEveryFlagIsAmongThem(t *testing.T) {
	t.Parallel()
	s, err := readSettings([]string{"--help"}, nothing)
	require.Error(t, err)
	var flags []string
	for _, found := range regexp.MustCompile(`--([a-z][a-z0-9-]+) `).FindAllStringSubmatch(s.help, -1) {
		flags = append(flags, found[1])
	}
	require.NotEmpty(t, flags)
	known := anyText()
	for flag := range badValues() {
		known = append(known, flag)
	}
	require.ElementsMatch(t, flags, known)
}

func TestDefaultsAreRight(t *testing.T) {
	t.Parallel()
	s, err := readSettings(nil, nothing)
	require.NoError(t, err)
	require.Equal(t, "argocd", s.namespace)
}

func TestCertificateFilesComeInPairs(t *testing.T) {
	t.Parallel()
	for flag, other := range map[string]string{"tls-cert": "tls-key", "tls-key": "tls-cert"} {
		_, err := readSettings([]string{"--" + flag + "=/some/file"}, nothing)
		require.ErrorContains(t, err, "--"+flag)
		require.ErrorContains(t, err, "--"+other)
		require.ErrorContains(t, err, "set both or neither")
	}
}

// All that is wrong is said at once: an operator who mends one thing at a time restarts as often.
func TestAllMistakesAreToldTogether(t *testing.T) {
	t.Parallel()
	_, err := readSettings([]string{"--namespace=A", "--no-such-flag", "--log-format=xml", "stray"}, nothing)
	require.ErrorContains(t, err, "--namespace")
	require.ErrorContains(t, err, "--no-such-flag: no such flag")
	require.ErrorContains(t, err, "--log-format")
	require.ErrorContains(t, err, `argument "stray"`)
}

// nothing is an environment without variables.
func nothing(string) (string, bool) { return "", false }

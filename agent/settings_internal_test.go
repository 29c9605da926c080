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
		"kubeconfig":                 {"", "want a file that can be read", []string{"/no/such/file"}},
		"namespace":                  {"ARGOCD_AGENT_NAMESPACE", "want", []string{"", "Argo", "a.b", "-a"}},
		"metrics-port":               {"ARGOCD_AGENT_METRICS_PORT", "want", []string{"-1", "65536", "http", "1.5"}},
		"healthz-port":               {"ARGOCD_AGENT_HEALTH_CHECK_PORT", "want", []string{"-1", "65536", "http"}},
		"pprof-port":                 {"ARGOCD_AGENT_PPROF_PORT", "want", []string{"-1", "65536", "yes"}},
		"log-level":                  {"ARGOCD_AGENT_LOG_LEVEL", "want [component=]level", []string{"loud", "=info", "sync="}},
		"log-format":                 {"ARGOCD_AGENT_LOG_FORMAT", "want one of text, json", []string{"xml", "JSON"}},
		"tls-secret-name":            {"ARGOCD_AGENT_TLS_SECRET_NAME", "want", []string{"", "a b", "A"}},
		"tls-min-version":            {"ARGOCD_AGENT_TLS_MIN_VERSION", "use one of tls1.1, tls1.2, tls1.3", []string{"1.2", "ssl3"}},
		"tls-max-version":            {"ARGOCD_AGENT_TLS_MAX_VERSION", "use one of tls1.1, tls1.2, tls1.3", []string{"1.2", "tls1.4"}},
		"tls-ciphersuites":           {"ARGOCD_AGENT_TLS_CIPHERSUITES", "want one of TLS_AES_128_GCM_SHA256", []string{"ROT13", "TLS_AES_128_GCM_SHA256,ROT13"}},
		"compare-interval":           {"ARGOCD_AGENT_COMPARE_INTERVAL", "want", []string{"0", "-1m", "5", "often"}},
		"agent-mode":                 {"ARGOCD_AGENT_MODE", "want one of managed, autonomous", []string{"both", "Managed"}},
		"destination-based-mapping":  {"ARGOCD_AGENT_DESTINATION_BASED_MAPPING", "want true or false", []string{"perhaps"}},
		"create-namespace":           {"ARGOCD_AGENT_CREATE_NAMESPACE", "want true or false", []string{"perhaps"}},
		"allowed-namespaces":         {"ARGOCD_AGENT_ALLOWED_NAMESPACES", "want globs or /regular expressions/", []string{"[", "a,/(/"}},
		"label-selector":             {"ARGOCD_AGENT_LABEL_SELECTOR", "want a label selector", []string{"a=b=c", "in (", "!"}},
		"ignore-unmanaged-apps":      {"ARGOCD_AGENT_IGNORE_UNMANAGED_APPS", "want true or false", []string{"perhaps"}},
		"adoption-policy":            {"ARGOCD_AGENT_ADOPTION_POLICY", "want one of always, never", []string{"sometimes"}},
		"source-uid-mismatch-policy": {"ARGOCD_AGENT_SOURCE_UID_MISMATCH_POLICY", "want one of recreate, upsert", []string{"delete"}},
		"on-application-recreate":    {"ARGOCD_AGENT_ON_APPLICATION_RECREATE", "want one of ignore, clear-status, resync", []string{"sync"}},
		"server-address":             {"ARGOCD_AGENT_REMOTE_SERVER", "want", []string{"", "https://hub", "hub:8443", "hub/path", "a b"}},
		"server-port":                {"ARGOCD_AGENT_REMOTE_PORT", "want", []string{"0", "65536", "https"}},
		"creds":                      {"ARGOCD_AGENT_CREDS", "want mtls:any", []string{"userpass:/etc/creds", "mtls"}},
		"root-ca-secret-name":        {"ARGOCD_AGENT_TLS_ROOT_CA_SECRET_NAME", "want", []string{"", "a/b"}},
		"insecure-tls":               {"ARGOCD_AGENT_TLS_INSECURE", "want true or false", []string{"maybe"}},
		"keep-alive-ping-interval":   {"ARGOCD_AGENT_KEEP_ALIVE_PING_INTERVAL", "want", []string{"-1s", "5"}},
		"heartbeat-interval":         {"ARGOCD_AGENT_HEARTBEAT_INTERVAL", "want", []string{"-1s", "30"}},
		"enable-resource-proxy":      {"ARGOCD_AGENT_ENABLE_RESOURCE_PROXY", "want true or false", []string{"perhaps"}},
		"policy-configmap-name":      {"ARGOCD_AGENT_POLICY_CONFIGMAP_NAME", "want", []string{"", "A", "a/b"}},
		"redis-addr":                 {"REDIS_ADDR", "want a host and a port", []string{"argocd-redis", ":6379", "redis://a:1"}},
		"redis-tls-enabled":          {"ARGOCD_AGENT_REDIS_TLS_ENABLED", "want true or false", []string{"perhaps"}},
		"redis-tls-insecure":         {"ARGOCD_AGENT_REDIS_TLS_INSECURE", "want true or false", []string{"perhaps"}},
		"redis-tls-ca-secret-name":   {"ARGOCD_AGENT_REDIS_TLS_CA_SECRET_NAME", "want", []string{"", "a b"}},
	}
}

// anyText are the flags of which no value can be told to be wrong without looking at what it names.
func anyText() []string {
	return []string{
		"kubecontext", "tls-client-cert", "tls-client-key", "root-ca-path", "redis-username", "redis-password", "redis-creds-dir-path",
		"redis-key-prefix", "redis-tls-ca-path",
	}
}

func TestEveryFlagWithABadValueSaysWhatWouldBeRight(t *testing.T) {
	t.Parallel()
	for flag, c := range badValues() {
		for _, value := range c.values {
			t.Run(flag+"="+value, func(t *testing.T) {
				t.Parallel()
				_, err := readSettings([]string{"--server-address=hub", "--" + flag + "=" + value}, nothing)
				requireNamed(t, err, flag, c.variable, c.want)
				if c.variable == "" || value == "" {
					return
				}
				_, err = readSettings(nil, func(name string) (string, bool) {
					if name == c.variable {
						return value, true
					}
					return hub(name)
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
			_, err := readSettings([]string{"--server-address=hub", "--" + flag + "=" + value}, nothing)
			require.ErrorContains(t, err, "--"+flag, value)
			require.ErrorContains(t, err, c.want, value)
		}
		for _, value := range c.good {
			_, err := readSettings([]string{"--server-address=hub", "--" + flag + "=" + value}, nothing)
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
		"compare-interval":         {"want at least 1s", []string{"1ns", "1ms", "999ms", "0", "-1s"}, []string{"1s", "5m"}},
		"heartbeat-interval":       {"want at least 1s, or 0 for never", []string{"1ns", "1us", "999ms", "-1s"}, []string{"0", "1s", "1m"}},
		"keep-alive-ping-interval": {"want at least 10s, or 0 for never", []string{"1ns", "9s", "-1s"}, []string{"0", "10s", "1m"}},
	}
}

// The rules over several settings are asked whatever else is wrong.
func TestMistakesOfEveryKindAreToldTogether(t *testing.T) {
	t.Parallel()
	_, err := readSettings([]string{
		"--creds=userpass:x", "--tls-min-version=tls1.9", "--tls-max-version=ssl3", "--tls-ciphersuites=ROT13",
		"--log-level=foo=bar,baz", "--tls-client-cert=x", "--compare-interval=1ns", "--no-such-flag",
	}, nothing)
	for _, want := range []string{
		"--creds", `"tls1.9"`, `"ssl3"`, "ROT13", "--log-level", "--tls-client-cert or ARGOCD_AGENT_TLS_CLIENT_CERT_PATH, --tls-client-key", "set both or neither",
		"--compare-interval", "--no-such-flag",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = readSettings([]string{"--server-address=hub", "--log-format=xml", "--tls-min-version=tls1.3", "--tls-max-version=tls1.2"}, nothing)
	require.ErrorContains(t, err, "--log-format")
	require.ErrorContains(t, err, "raise the maximum or lower the minimum")
}

func TestRedisCredentialsAreGivenOneWay(t *testing.T) {
	t.Parallel()
	_, err := readSettings([]string{"--server-address=hub", "--redis-creds-dir-path=/creds", "--redis-password=x"}, nothing)
	require.ErrorContains(t, err, "set the folder or the two others")
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
	s, err := readSettings(nil, hub)
	require.NoError(t, err)
	require.Equal(t, "argocd", s.namespace)
}

func TestCertificateFilesComeInPairs(t *testing.T) {
	t.Parallel()
	for flag, other := range map[string]string{"tls-client-cert": "tls-client-key", "tls-client-key": "tls-client-cert"} {
		_, err := readSettings([]string{"--server-address=hub", "--" + flag + "=/some/file"}, nothing)
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

// hub is an environment with what has no default.
func hub(name string) (string, bool) { return "hub", name == "ARGOCD_AGENT_REMOTE_SERVER" }

package settings_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// options has one field of every kind, as a program's would.
type options struct {
	host       string
	port       int
	pprofPort  int
	namespaces []string
	namespace  string
	create     bool
	interval   time.Duration
	format     string
	kubeconfig string
}

func (o *options) declare(set *settings.Set) {
	set.String(&o.host, "listen-host", "P_LISTEN_HOST", "", "Host to listen on")
	set.Int(&o.port, "listen-port", "P_LISTEN_PORT", 8443, "Port to listen on", settings.Port)
	set.Int(&o.pprofPort, "pprof-port", "P_PPROF_PORT", 0, "Port of the profiles", settings.PortOrOff)
	set.Strings(&o.namespaces, "allowed-namespaces", "P_NAMESPACES", []string{"argocd"}, "Namespaces to use", settings.Each(settings.DNSLabel))
	set.String(&o.namespace, "namespace,n", "P_NAMESPACE", "argocd", "Namespace", settings.DNSLabel)
	set.Bool(&o.create, "namespace-create-enable", "P_CREATE", false, "Create namespaces")
	set.Duration(&o.interval, "interval", "P_INTERVAL", 10*time.Second, "Interval", settings.NonNegative)
	set.String(&o.format, "log-format", "P_LOG_FORMAT", "text", "Log format", settings.OneOf("text", "json"))
	set.String(&o.kubeconfig, "kubeconfig", "", "", "Path of a kubeconfig", settings.File)
}

// environment is the variables of a process.
type environment = map[string]string

func TestDefaultsHoldWhenNothingIsGiven(t *testing.T) {
	var o options
	require.NoError(t, settingstest.Parse(o.declare, nil))
	require.Equal(t, options{port: 8443, namespaces: []string{"argocd"}, namespace: "argocd", interval: 10 * time.Second, format: "text"}, o)
}

func TestEnvironmentWinsOverDefault(t *testing.T) {
	var o options
	require.NoError(t, settingstest.Parse(o.declare, environment{
		"P_LISTEN_HOST": "127.0.0.1", "P_LISTEN_PORT": "9443", "P_PPROF_PORT": "6060", "P_NAMESPACES": " team-a, team-b,",
		"P_CREATE": "true", "P_INTERVAL": "1m30s", "P_LOG_FORMAT": "json", "P_NAMESPACE": "other",
	}))
	require.Equal(t, options{
		host: "127.0.0.1", port: 9443, pprofPort: 6060, namespaces: []string{"team-a", "team-b"}, namespace: "other",
		create: true, interval: 90 * time.Second, format: "json",
	}, o)
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	var o options
	require.NoError(t, settingstest.Parse(o.declare, environment{
		"P_LISTEN_PORT": "not even a number", "P_CREATE": "true", "P_NAMESPACES": "from-environment", "P_LOG_FORMAT": "json",
	}, "--listen-port", "7443", "--namespace-create-enable=false", "-n", "first", "-n", "last",
		"--allowed-namespaces", "a", "--allowed-namespaces=b,c", "--log-format=text"))
	require.Equal(t, 7443, o.port)
	require.False(t, o.create)
	require.Equal(t, "last", o.namespace)
	require.Equal(t, []string{"a", "b", "c"}, o.namespaces)
	require.Equal(t, "text", o.format)
}

func TestBareSwitchIsOn(t *testing.T) {
	var o options
	require.NoError(t, settingstest.Parse(o.declare, nil, "--namespace-create-enable"))
	require.True(t, o.create)
}

func TestEmptyVariableCountsAsUnset(t *testing.T) {
	var o options
	require.NoError(t, settingstest.Parse(o.declare, environment{"P_LISTEN_PORT": "", "P_LOG_FORMAT": "", "P_CREATE": "", "": "x"}))
	require.Equal(t, 8443, o.port)
	require.Equal(t, "text", o.format)
	require.Empty(t, o.kubeconfig, "it has no variable")
}

func TestEmptyFlagEmptiesAList(t *testing.T) {
	var o options
	require.NoError(t, settingstest.Parse(o.declare, nil, "--allowed-namespaces="))
	require.Empty(t, o.namespaces)
}

func TestAllProblemsAreReportedTogether(t *testing.T) {
	var o options
	folder := t.TempDir()
	err := settingstest.Parse(o.declare, environment{"P_LISTEN_PORT": "70000", "P_CREATE": "perhaps", "P_INTERVAL": "10"},
		"--log-format", "xml", "--pprof-port=x", "--allowed-namespaces", "fine,Not_Fine", "--kubeconfig", folder)
	problems := strings.Split(err.Error(), "\n")
	require.Len(t, problems, 7)
	for i, want := range []string{
		`--listen-port or P_LISTEN_PORT: "70000" (by environment): want a port, 1 to 65535`,
		`--pprof-port or P_PPROF_PORT: "x" (by flag): want a whole number`,
		`--allowed-namespaces or P_NAMESPACES: "fine,Not_Fine" (by flag): "Not_Fine": a lowercase RFC 1123 label must consist of`,
		`--namespace-create-enable or P_CREATE: "perhaps" (by environment): want true or false`,
		`--interval or P_INTERVAL: "10" (by environment): want a length of time with its unit, such as 30s or 5m`,
		`--log-format or P_LOG_FORMAT: "xml" (by flag): want one of text, json`,
		`--kubeconfig: "` + folder + `" (by flag): want a file, not a folder`,
	} {
		require.Contains(t, problems[i], want)
	}
}

func TestRequiredSettingIsReportedWhenNothingIsGiven(t *testing.T) {
	var address string
	declare := func(set *settings.Set) {
		set.String(&address, "server-address", "A_SERVER", "", "Server", settings.NonEmpty)
	}
	require.EqualError(t, settingstest.Parse(declare, nil),
		`--server-address or A_SERVER: "" (by default): want a value; this setting has no default`)
	require.NoError(t, settingstest.Parse(declare, nil, "--server-address", "hub"))
	require.Equal(t, "hub", address)
}

func TestRulesSeeOnlyValuesThatAreRight(t *testing.T) {
	var certificate, key string
	var port, asked int
	declare := func(set *settings.Set) {
		set.String(&certificate, "cert", "CERT", "", "Certificate")
		set.String(&key, "key", "", "", "Key")
		set.Int(&port, "port", "", 1, "Port", settings.Port)
		set.Rule(func() error {
			asked++
			if (certificate == "") != (key == "") {
				return errors.New("set both or neither")
			}
			return nil
		}, "cert", "key")
		set.Rule(func() error { asked++; return nil }, "port")
	}
	// Each is checked when its own settings are right, whatever others are.
	err := settingstest.Parse(declare, nil, "--cert=a", "--port=0")
	require.ErrorContains(t, err, "--port")
	require.ErrorContains(t, err, "set both or neither")
	require.Equal(t, 1, asked)
	require.EqualError(t, settingstest.Parse(declare, nil, "--cert=a"), "--cert or CERT, --key: set both or neither")
	require.NoError(t, settingstest.Parse(declare, nil, "--cert=a", "--key=b"))
}

func TestHelpNamesFlagVariableAndDefault(t *testing.T) {
	var o options
	flags := pflag.NewFlagSet("principal", pflag.ContinueOnError)
	o.declare(settings.New(flags, nil))
	for _, line := range []string{
		`--listen-port int +Port to listen on \[P_LISTEN_PORT\] \(default 8443\)`,
		`--allowed-namespaces strings +Namespaces to use \[P_NAMESPACES\] \(default argocd\)`,
		`-n, --namespace string +Namespace \[P_NAMESPACE\] \(default "argocd"\)`,
		`--namespace-create-enable +Create namespaces \[P_CREATE\]`,
		`--interval duration +Interval \[P_INTERVAL\] \(default 10s\)`,
		`--kubeconfig string +Path of a kubeconfig\n`,
	} {
		require.Regexp(t, line, flags.FlagUsages())
	}
}

func TestChecks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	of := func(check settings.Check[string], text string) func() error {
		return func() error { return check(text) }
	}

	right := map[string]func() error{
		"highest port":   func() error { return settings.Port(65535) },
		"port off":       func() error { return settings.PortOrOff(0) },
		"text":           of(settings.NonEmpty, "x"),
		"zero":           func() error { return settings.NonNegative(0) },
		"a second":       func() error { return settings.Positive(time.Second) },
		"the least":      func() error { return settings.AtLeast(time.Second)(time.Second) },
		"off":            func() error { return settings.OffOrAtLeast(time.Second)(0) },
		"on":             func() error { return settings.OffOrAtLeast(time.Second)(time.Second) },
		"one of":         of(settings.OneOf("a", "b"), "b"),
		"readable file":  of(settings.File, file),
		"no file":        of(settings.File, ""),
		"longest label":  of(settings.DNSLabel, strings.Repeat("a", 63)),
		"label":          of(settings.DNSLabel, "team-1"),
		"subdomain":      of(settings.DNSSubdomain, "argocd-agent.tls"),
		"no subdomain":   of(settings.DNSSubdomain, ""),
		"host":           of(settings.Host, "Principal.Example.com."),
		"IPv4 host":      of(settings.Host, "127.0.0.1"),
		"IPv6 host":      of(settings.Host, "::1"),
		"no matter what": of(settings.Host, ""),
		"an address":     of(settings.HostPort, "argocd-redis:6379"),
		"IPv6 address":   of(settings.HostPort, "[::1]:6379"),
		"an empty list":  func() error { return settings.Each(settings.NonEmpty)(nil) },
		"all of a list":  func() error { return settings.Each(settings.NonEmpty)([]string{"a"}) },
		"pprof port set": func() error { return settings.PortOrOff(6060) },
	}
	for name, check := range right {
		require.NoError(t, check(), name)
	}
	wrong := map[string]func() error{
		"port zero":      func() error { return settings.Port(0) },
		"port too high":  func() error { return settings.PortOrOff(65536) },
		"nothing":        of(settings.NonEmpty, ""),
		"negative":       func() error { return settings.NonNegative(-time.Second) },
		"zero":           func() error { return settings.Positive(0) },
		"too little":     func() error { return settings.AtLeast(time.Second)(time.Second - 1) },
		"nothing at all": func() error { return settings.AtLeast(time.Second)(0) },
		"nearly off":     func() error { return settings.OffOrAtLeast(time.Second)(1) },
		"less than off":  func() error { return settings.OffOrAtLeast(time.Second)(-1) },
		"none of":        of(settings.OneOf("a", "b"), ""),
		"missing file":   of(settings.File, file+"x"),
		"long label":     of(settings.DNSLabel, strings.Repeat("a", 64)),
		"dotted label":   of(settings.DNSLabel, "a.b"),
		"outer hyphen":   of(settings.DNSLabel, "a-"),
		"spaced name":    of(settings.DNSSubdomain, "a b"),
		"outer dot":      of(settings.DNSSubdomain, ".a"),
		"long name":      of(settings.DNSSubdomain, strings.Repeat("a.", 127)+"a"),
		"host with port": of(settings.Host, "example.com:443"),
		"host as a URL":  of(settings.Host, "https://example.com"),
		"bracketed host": of(settings.Host, "[::1]"),
		"no port":        of(settings.HostPort, "argocd-redis"),
		"no host":        of(settings.HostPort, ":6379"),
		"port's name":    of(settings.HostPort, "argocd-redis:redis"),
		"too high port":  of(settings.HostPort, "argocd-redis:65536"),
		"one of a list":  func() error { return settings.Each(settings.NonEmpty)([]string{"a", ""}) },
	}
	for name, check := range wrong {
		require.Error(t, check(), name)
	}
}

// What may be left out has a value that nobody can name.
func TestChoiceOfNothingIsNotOffered(t *testing.T) {
	t.Parallel()
	require.EqualError(t, settings.OneOf("", "a", "b")("c"), "want one of a, b")
}

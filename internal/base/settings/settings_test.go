package settings_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
)

// environment is a lookup on a map.
func environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, ok := variables[name]
		return text, ok
	}
}

// options has one field of every kind, as a program's would.
type options struct {
	host       string
	port       int
	pprofPort  int
	namespaces []string
	create     bool
	interval   time.Duration
	format     string
	kubeconfig string
}

// declared is a set over the options, read from the given environment.
func declared(o *options, variables map[string]string) *settings.Set {
	set := settings.New("principal", environment(variables))
	set.String(&o.host, "listen-host", "P_LISTEN_HOST", "", "Host to listen on")
	set.Int(&o.port, "listen-port", "P_LISTEN_PORT", 8443, "Port to listen on", settings.Port)
	set.Int(&o.pprofPort, "pprof-port", "P_PPROF_PORT", 0, "Port of the profiles", settings.PortOrOff)
	set.Strings(&o.namespaces, "allowed-namespaces", "P_NAMESPACES", []string{"argocd"}, "Namespaces to use", settings.Each(settings.DNSLabel))
	set.Shorthand("allowed-namespaces", "n")
	set.Bool(&o.create, "namespace-create-enable", "P_CREATE", false, "Create namespaces")
	set.Duration(&o.interval, "interval", "P_INTERVAL", 10*time.Second, "Interval", settings.NonNegative)
	set.String(&o.format, "log-format", "P_LOG_FORMAT", "text", "Log format", settings.OneOf("text", "json"))
	set.String(&o.kubeconfig, "kubeconfig", "", "", "Path of a kubeconfig", settings.File)
	return set
}

func TestDefaultsHoldWhenNothingIsGiven(t *testing.T) {
	var o options
	require.NoError(t, declared(&o, nil).Parse(nil))
	require.Equal(t, options{port: 8443, namespaces: []string{"argocd"}, interval: 10 * time.Second, format: "text"}, o)
}

func TestEnvironmentWinsOverDefault(t *testing.T) {
	var o options
	require.NoError(t, declared(&o, map[string]string{
		"P_LISTEN_HOST": "127.0.0.1", "P_LISTEN_PORT": "9443", "P_PPROF_PORT": "6060", "P_NAMESPACES": " team-a, team-b,",
		"P_CREATE": "true", "P_INTERVAL": "1m30s", "P_LOG_FORMAT": "json",
	}).Parse(nil))
	require.Equal(t, options{
		host: "127.0.0.1", port: 9443, pprofPort: 6060, namespaces: []string{"team-a", "team-b"},
		create: true, interval: 90 * time.Second, format: "json",
	}, o)
}

func TestFlagWinsOverEnvironment(t *testing.T) {
	var o options
	set := declared(&o, map[string]string{
		"P_LISTEN_PORT": "not even a number", "P_CREATE": "true", "P_NAMESPACES": "from-environment", "P_LOG_FORMAT": "json",
	})
	require.NoError(t, set.Parse([]string{
		"--listen-port", "7443", "--namespace-create-enable=false", "-n", "a", "--allowed-namespaces=b,c", "--log-format=text",
	}))
	require.Equal(t, 7443, o.port)
	require.False(t, o.create)
	require.Equal(t, []string{"a", "b", "c"}, o.namespaces)
	require.Equal(t, "text", o.format)
}

func TestBareSwitchIsOn(t *testing.T) {
	var o options
	require.NoError(t, declared(&o, nil).Parse([]string{"--namespace-create-enable"}))
	require.True(t, o.create)
}

func TestEmptyVariableCountsAsUnset(t *testing.T) {
	var o options
	require.NoError(t, declared(&o, map[string]string{"P_LISTEN_PORT": "", "P_LOG_FORMAT": "", "P_CREATE": ""}).Parse(nil))
	require.Equal(t, 8443, o.port)
	require.Equal(t, "text", o.format)
}

func TestEmptyFlagEmptiesAList(t *testing.T) {
	var o options
	require.NoError(t, declared(&o, nil).Parse([]string{"--allowed-namespaces="}))
	require.Empty(t, o.namespaces)
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	var o options
	folder := t.TempDir()
	set := declared(&o, map[string]string{"P_LISTEN_PORT": "70000", "P_CREATE": "perhaps", "P_INTERVAL": "10"})
	err := set.Parse([]string{
		"--log-fromat", "json", "--log-format", "xml", "--zzz=1", "-q", "--pprof-port=-1", "stray",
		"--allowed-namespaces", "fine,Not_Fine", "--kubeconfig", folder,
	})
	require.Equal(t, []string{
		`--log-fromat: no such flag; did you mean --log-format?`,
		`--zzz: no such flag; --help lists them`,
		`-q: no such flag`,
		`argument "stray": want flags only, and a switch as --flag=stray`,
		`--listen-port or P_LISTEN_PORT: "70000" (by environment): want a port, 1 to 65535`,
		`--pprof-port or P_PPROF_PORT: "-1" (by flag): want a port, 1 to 65535, or 0 for none`,
		`--allowed-namespaces or P_NAMESPACES: "fine,Not_Fine" (by flag): "Not_Fine": want at most 63 lower-case letters, digits and inner hyphens`,
		`--namespace-create-enable or P_CREATE: "perhaps" (by environment): want true or false`,
		`--interval or P_INTERVAL: "10" (by environment): want a length of time with its unit, such as 30s or 5m`,
		`--log-format or P_LOG_FORMAT: "xml" (by flag): want one of text, json`,
		`--kubeconfig: "` + folder + `" (by flag): want a file, not a folder`,
	}, strings.Split(err.Error(), "\n"))
}

func TestAFlagWithoutItsValueIsSaid(t *testing.T) {
	var o options
	require.EqualError(t, declared(&o, nil).Parse([]string{"--listen-port"}), "flag needs an argument: --listen-port")
}

func TestABadDefaultIsSaidWhenNothingReplacesIt(t *testing.T) {
	var address string
	set := settings.New("agent", environment(nil))
	set.String(&address, "server-address", "A_SERVER", "", "Server", settings.NonEmpty)
	require.EqualError(t, set.Parse(nil),
		`--server-address or A_SERVER: "" (by default): want a value; this setting has no default`)

	require.NoError(t, set.Parse([]string{"--server-address", "hub"}))
	require.Equal(t, "hub", address)
}

func TestRulesSeeOnlyValuesThatAreRight(t *testing.T) {
	var certificate, key string
	var port int
	set := settings.New("agent", environment(nil))
	set.String(&certificate, "cert", "", "", "Certificate")
	set.String(&key, "key", "", "", "Key")
	set.Int(&port, "port", "", 1, "Port", settings.Port)
	asked := 0
	set.Rule(func() error {
		asked++
		if (certificate == "") != (key == "") {
			return errors.New("--cert and --key: give both or neither")
		}
		return nil
	}, "cert", "key")
	set.Rule(func() error { asked++; return nil }, "port")

	// Each is asked when its own settings are right, whatever others are.
	err := set.Parse([]string{"--cert=a", "--port=0", "--no-such-flag"})
	require.ErrorContains(t, err, "--port")
	require.ErrorContains(t, err, "--no-such-flag")
	require.ErrorContains(t, err, "give both or neither")
	require.Equal(t, 1, asked)
	// What is missing may be in what was not read.
	require.EqualError(t, set.Parse([]string{"--cert=a", "--key"}), "flag needs an argument: --key")
	require.Equal(t, 1, asked)
	require.EqualError(t, set.Parse([]string{"--cert=a"}), "--cert and --key: give both or neither")
	require.NoError(t, set.Parse([]string{"--cert=a", "--key=b"}))
}

func TestHelpNamesFlagVariableAndDefault(t *testing.T) {
	var o options
	set := declared(&o, nil)
	require.ErrorIs(t, set.Parse([]string{"--bogus", "--help"}), settings.ErrHelp)
	require.ErrorIs(t, set.Parse([]string{"-h"}), settings.ErrHelp)

	help := set.Help()
	require.True(t, strings.HasPrefix(help, "Usage: principal [flags]\n"), help)
	for _, line := range []string{
		`--listen-port int +Port to listen on \[P_LISTEN_PORT\] \(default 8443\)`,
		`-n, --allowed-namespaces strings +Namespaces to use \[P_NAMESPACES\] \(default argocd\)`,
		`--namespace-create-enable +Create namespaces \[P_CREATE\]`,
		`--interval duration +Interval \[P_INTERVAL\] \(default 10s\)`,
		`--kubeconfig string +Path of a kubeconfig\n`,
	} {
		require.Regexp(t, line, help)
	}
}

func TestAShorthandOfNothingIsSaid(t *testing.T) {
	set := settings.New("agent", environment(nil))
	set.Shorthand("namespace", "n")
	require.EqualError(t, set.Parse(nil), "-n: stands for --namespace, which is no flag")
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
		require.ErrorContains(t, check(), "want", name)
	}
}

// A rule is about several settings, and calls them what the operator calls them.
func TestRulesNameTheirSettings(t *testing.T) {
	var o options
	set := declared(&o, nil)
	set.Rule(func() error { return errors.New(set.Names("listen-host", "kubeconfig") + ": set both or neither") })
	require.EqualError(t, set.Parse(nil), "--listen-host or P_LISTEN_HOST, --kubeconfig: set both or neither")
}

package settings_test

import (
	"errors"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
)

// declareOwn declares settings of a program that owns the variables which begin with P_, save another program's.
func declareOwn(set *settings.Set) {
	var text string
	var on bool
	set.Own("P_", "P_OTHER_")
	set.String(&text, "label-selector", "P_LABEL_SELECTOR", "", "what to share")
	set.Int(new(int), "port", "P_PORT_NUMBER", 1, "port", settings.Port)
	set.Bool(&on, "insecure-tls", "P_TLS_INSECURE", false, "INSECURE: trust anybody")
	set.Bool(&on, "tls-generate", "P_TLS_GENERATE", false, "INSECURE: make up a certificate")
}

// A mistyped variable of a label selector would share everything.
func TestUnknownVariablesAreReportedTogether(t *testing.T) {
	err := settingstest.Parse(declareOwn, environment{
		"P_LABEL_SELECTR": "a=b", "P_HA_ENABLED": "true", "P_INSECURE_TLS": "true", "P_TLS_GENERATES": "true", "P_PORT_NUMBER": "0",
	})
	require.EqualError(t, err, `P_HA_ENABLED: no setting has this environment variable: remove it; --help lists the variables that there are
P_INSECURE_TLS: no setting has this environment variable: remove it; --help lists the variables that there are
P_LABEL_SELECTR: no setting has this environment variable: did you mean P_LABEL_SELECTOR?
P_TLS_GENERATES: no setting has this environment variable: remove it; --help lists the variables that there are
--port or P_PORT_NUMBER: "0" (by environment): want a port, 1 to 65535`)
}

// Nobody means these as settings of this program.
func TestOtherVariablesAreLeftAlone(t *testing.T) {
	for name, variables := range map[string]environment{
		"set to nothing":        {"P_HA_ENABLED": ""},
		"of another program":    {"P_OTHER_PORT": "1", "Q_PORT": "1", "PATH": "/bin"},
		"those of the settings": {"P_LABEL_SELECTOR": "a=b", "P_TLS_INSECURE": "true"},
		"Kubernetes' Service links": {
			"P_SERVER_SERVICE_HOST": "10.0.0.1", "P_SERVER_SERVICE_PORT": "443", "P_SERVER_SERVICE_PORT_HTTPS": "443", "P_SERVER_PORT": "tcp://10.0.0.1:443",
			"P_SERVER_PORT_443_TCP": "tcp://10.0.0.1:443", "P_SERVER_PORT_443_TCP_ADDR": "10.0.0.1",
		},
	} {
		require.NoError(t, settingstest.Parse(declareOwn, variables), name)
	}
	require.ErrorContains(t, settingstest.Parse(declareOwn, environment{"P_SERVER_PORT": "443"}), "P_SERVER_PORT", "without a Service it is a setting")
}

// Whoever asks for plain text must not be advised to trust anybody.
func TestUnknownFlagsAreExplained(t *testing.T) {
	for flag, want := range map[string]string{
		"label-selectr":      "unknown flag: --label-selectr: did you mean --label-selector? See p --help",
		"insecure-plaintext": "unknown flag: --insecure-plaintext: see p --help",
		"insecure-tl":        "unknown flag: --insecure-tl: see p --help",
		"tls-generated":      "unknown flag: --tls-generated: see p --help",
	} {
		flags := pflag.NewFlagSet("p", pflag.ContinueOnError)
		set := settings.New(flags, []string{"P_HA=true"})
		declareOwn(set)
		args := []string{"--" + flag}
		err := set.FlagError(flags, "p --help", flags.Parse(args), args)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "P_HA", "the rest is reported too")
	}
	flags := pflag.NewFlagSet("p", pflag.ContinueOnError)
	require.EqualError(t, settings.New(flags, nil).FlagError(flags, "p --help", errors.New("wrong"), nil), "wrong: see p --help")
}

// Whoever corrects one flag after the other needs a restart for each.
func TestUnknownFlagsAreReportedTogether(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"with and without values": {[]string{"--unheard-of", "value", "--label-selectr=x", "--port=1", "--another-one", "--another-one"}, `unknown flag: --unheard-of: see p --help
unknown flag: --label-selectr: did you mean --label-selector? See p --help
unknown flag: --another-one: see p --help`},
		"of one letter": {[]string{"-ab", "-a=c", "--unheard-of"}, `unknown shorthand flag: 'a' in -ab: see p --help
unknown shorthand flag: 'b' in -b: see p --help
unknown flag: --unheard-of: see p --help`},
		"that is not ASCII": {[]string{"--unheard-of", "-é", "--two"}, `unknown flag: --unheard-of: see p --help
unknown shorthand flag: 'Ã' in -é: see p --help`},
		"before one without its value": {[]string{"--unheard-of", "--label-selector"}, `unknown flag: --unheard-of: see p --help
flag needs an argument: --label-selector: see p --help`},
		"before the end of flags": {[]string{"--unheard-of", "--", "--two"}, "unknown flag: --unheard-of: see p --help"},
	} {
		flags := pflag.NewFlagSet("p", pflag.ContinueOnError)
		set := settings.New(flags, nil)
		declareOwn(set)
		require.EqualError(t, set.FlagError(flags, "p --help", flags.Parse(c.args), c.args), c.want, name)
	}
}

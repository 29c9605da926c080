package certs_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/settings/settingstest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// noSecrets are Secrets of which none is there.
type noSecrets struct{}

type noSecret string

func (noSecrets) Pair(name string) certs.Origin  { return noSecret(name) }
func (noSecrets) Roots(name string) certs.Origin { return noSecret(name) }

func (s noSecret) String() string { return "Secret " + string(s) }

func (s noSecret) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	report(certs.Blocks{}, context.Canceled)
	<-ctx.Done()
	return nil
}

// missing returns what the Source of the settings says is missing, with its hints.
func missing(t *testing.T, s *certs.Settings) error {
	t.Helper()
	journal, logger := newJournal()
	source, err := s.Source("test", noSecrets{}, logger, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx) }()
	journal.await(t, "TLS certificates missing")
	stop()
	require.NoError(t, <-ended)
	return source.Ready()
}

func TestFilesWinOverTheSecret(t *testing.T) {
	declare := func(s *certs.Settings) func(*settings.Set) {
		return func(set *settings.Set) {
			s.DeclarePair(set, certs.Flags{
				Files:  []certs.Flag{{Name: "cert", Variable: "CERT"}, {Name: "key", Variable: "KEY"}},
				Secret: certs.Flag{Name: "secret", Variable: "SECRET", Fallback: "test-tls"}, Hint: "create it",
			})
		}
	}
	var bySecret, byFiles certs.Settings
	require.NoError(t, settingstest.Parse(declare(&bySecret), nil))
	require.ErrorContains(t, missing(t, &bySecret), "Secret test-tls: context canceled: create it")
	require.Equal(t, []string{"test-tls"}, bySecret.SecretNames())
	folder := t.TempDir()
	require.NoError(t, settingstest.Parse(declare(&byFiles), nil, "--cert="+folder+"/none", "--key="+folder+"/none"))
	require.ErrorContains(t, missing(t, &byFiles), "no such file or directory: see --cert and --key")

	require.ErrorContains(t, settingstest.Parse(declare(&bySecret), nil, "--key=x"), "--cert or CERT, --key or KEY: set both or neither")
	require.ErrorContains(t, settingstest.Parse(declare(&bySecret), nil, "--secret="), "want a value")
	require.ErrorContains(t, settingstest.Parse(declare(&bySecret), nil, "--secret=a_b"), "RFC 1123 subdomain")
}

func TestProgramWithoutSecretsHasFilesOrNothing(t *testing.T) {
	declare := func(s *certs.Settings, required bool) func(*settings.Set) {
		return func(set *settings.Set) {
			s.DeclareRoots(set, certs.Flags{Files: []certs.Flag{{Name: "ca", Variable: "CA"}}, Required: required, Hint: "mount it"})
		}
	}
	var none, some certs.Settings
	require.NoError(t, settingstest.Parse(declare(&none, false), nil))
	require.False(t, none.Configured())
	source, err := none.Source("test", nil, nil, nil)
	require.NoError(t, err)
	require.Nil(t, source)
	require.NoError(t, settingstest.Parse(declare(&some, true), map[string]string{"CA": t.TempDir() + "/none"}))
	require.True(t, some.Configured())
	require.ErrorContains(t, missing(t, &some), "see --ca, or mount it")

	require.ErrorContains(t, settingstest.Parse(declare(&none, true), nil), "--ca or CA")
}

// Who writes to the Secrets asks first whether anything is read from there.
func TestSecretsCountOnlyWhereNothingElseDoes(t *testing.T) {
	for name, c := range map[string]struct {
		args                          []string
		pair, roots                   string
		fromWorkload, leaveOutThePair bool
	}{
		"Secrets":       {nil, "pair", "roots", false, false},
		"files of CAs":  {[]string{"--ca=x"}, "pair", "", false, false},
		"all files":     {[]string{"--ca=x", "--cert=x", "--key=x"}, "", "", false, false},
		"Workload API":  {[]string{"--spiffe-endpoint-socket=unix:///x"}, "", "", true, false},
		"both":          {[]string{"--spiffe-endpoint-socket=unix:///x", "--ca=x"}, "", "", false, false},
		"no pair":       {nil, "", "roots", false, true},
		"in plain text": {[]string{"--spiffe-endpoint-socket=unix:///x", "--plain"}, "", "", false, false},
	} {
		var s certs.Settings
		var plain bool
		s.Workload, s.Plaintext = new(certs.WorkloadAPI), &plain
		require.NoError(t, settingstest.Parse(func(set *settings.Set) {
			set.Bool(&plain, "plain", "PLAIN", false, "plain text")
			s.Workload.Declare(set)
			s.DeclarePair(set, certs.Flags{
				Files:  []certs.Flag{{Name: "cert", Variable: "CERT"}, {Name: "key", Variable: "KEY"}},
				Secret: certs.Flag{Name: "pair", Variable: "PAIR", Fallback: "pair"},
			})
			s.DeclareRoots(set, certs.Flags{
				Files: []certs.Flag{{Name: "ca", Variable: "CA"}}, Secret: certs.Flag{Name: "roots", Variable: "ROOTS", Fallback: "roots"},
			})
		}, nil, c.args...), name)
		if c.leaveOutThePair {
			s.WithoutPair()
		}
		require.Equal(t, c.pair, s.PairSecret(), name)
		require.Equal(t, c.roots, s.RootsSecret(), name)
		require.Equal(t, c.fromWorkload, s.FromWorkload(), name)
	}
}

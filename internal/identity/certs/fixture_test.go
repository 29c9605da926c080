package certs_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for what must happen.
const timeout = 2 * time.Minute

func newCA(t *testing.T, name string) *pki.CA {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: name})
	require.NoError(t, err)
	return ca
}

func clientPair(t *testing.T, ca *pki.CA, name string, validity pki.Validity) pki.Pair {
	t.Helper()
	pair, err := ca.IssueClient(pki.ClientOptions{CommonName: name, Validity: validity})
	require.NoError(t, err)
	return pair
}

func serverPair(t *testing.T, ca *pki.CA, validity pki.Validity) pki.Pair {
	t.Helper()
	pair, err := ca.IssueServer(pki.ServerOptions{
		CommonName: "principal",
		Names:      []string{"principal.test"},
		Addresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		Validity:   validity,
	})
	require.NoError(t, err)
	return pair
}

// past and future are validities that do not hold now.
func past() pki.Validity {
	return pki.Validity{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
}

func future() pki.Validity {
	return pki.Validity{NotBefore: time.Now().Add(time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}
}

// journal is a log that tests can wait on.
type journal struct {
	lines chan string
}

func newJournal() (*journal, *slog.Logger) {
	j := &journal{lines: make(chan string, 1000)}
	return j, slog.New(slog.NewTextHandler(j, nil))
}

func (j *journal) Write(line []byte) (int, error) {
	j.lines <- string(line)
	return len(line), nil
}

// next returns the next line.
func (j *journal) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-j.lines:
		return line
	case <-time.After(timeout):
		require.FailNow(t, "nothing was logged")
		return ""
	}
}

// await returns the first line from now on that contains the text.
func (j *journal) await(t *testing.T, text string) string {
	t.Helper()
	for {
		if line := j.next(t); strings.Contains(line, text) {
			return line
		}
	}
}

// requireNone fails when anything was logged that nobody waited for.
func (j *journal) requireNone(t *testing.T) {
	t.Helper()
	select {
	case line := <-j.lines:
		require.FailNow(t, "unexpected line in the log", line)
	default:
	}
}

// fixture is a running Source with its log and metrics.
type fixture struct {
	*certs.Source
	log     *journal
	metrics *prometheus.Registry
}

// run starts a Source, which is stopped, and waited for, at the end of the test.
func run(t *testing.T, options certs.Options) *fixture {
	t.Helper()
	r := &fixture{metrics: prometheus.NewRegistry()}
	if options.Name == "" {
		options.Name = "test"
	}
	r.log, options.Logger = newJournal()
	options.Metrics = certs.NewMetrics(r.metrics)
	var err error
	r.Source, err = certs.New(options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return r
}

// ready waits for the first material.
func (r *fixture) ready(t *testing.T) *fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, r.Wait(ctx))
	return r
}

// after does something that changes the material, and waits until it has.
func (r *fixture) after(t *testing.T, change func()) {
	t.Helper()
	changed := r.Changed()
	change()
	select {
	case <-changed:
	case <-time.After(timeout):
		require.FailNow(t, "the material has not changed")
	}
}

// serial returns the serial number of the current certificate.
func (r *fixture) serial(t *testing.T) string {
	t.Helper()
	material, err := r.Current()
	require.NoError(t, err)
	return material.Certificate.Leaf.SerialNumber.String()
}

func serialOf(t *testing.T, pair pki.Pair) string {
	t.Helper()
	loaded, err := pair.TLS()
	require.NoError(t, err)
	return loaded.Leaf.SerialNumber.String()
}

// value reads a metric whose labels have the values, in the order of the label names.
func (r *fixture) value(t *testing.T, metric string, labels ...string) float64 {
	t.Helper()
	families, err := r.metrics.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, series := range family.GetMetric() {
			var values []string
			for _, label := range series.GetLabel() {
				values = append(values, label.GetValue())
			}
			if strings.Join(values, ",") == strings.Join(labels, ",") {
				return series.GetCounter().GetValue() + series.GetGauge().GetValue()
			}
		}
	}
	require.FailNow(t, "no such metric", "%s %v", metric, labels)
	return 0
}

const (
	reloads  = "argocd_agent_certificate_reloads_total"
	notAfter = "argocd_agent_certificate_not_after_timestamp_seconds"
	failures = "argocd_agent_tls_handshake_failures_total"
)

// write puts a file in place by renaming, so that no reader sees half of it.
func write(t *testing.T, path string, contents []byte) {
	t.Helper()
	temporary := path + ".new"
	require.NoError(t, os.WriteFile(temporary, contents, 0o600))
	require.NoError(t, os.Rename(temporary, path))
}

// writePair writes tls.crt and tls.key into the directory.
func writePair(t *testing.T, directory string, pair pki.Pair) (certificate, key string) {
	t.Helper()
	certificate, key = filepath.Join(directory, "tls.crt"), filepath.Join(directory, "tls.key")
	write(t, certificate, pair.Certificate)
	write(t, key, pair.Key)
	return certificate, key
}

// memory is an Origin that a test changes at will.
type memory struct {
	reports chan report
}

type report struct {
	blocks certs.Blocks
	err    error
}

func newMemory(blocks certs.Blocks) *memory {
	m := &memory{reports: make(chan report, 100)}
	m.put(blocks)
	return m
}

func (m *memory) put(blocks certs.Blocks) { m.reports <- report{blocks: blocks} }

func (m *memory) String() string { return "the test" }

func (m *memory) Watch(ctx context.Context, take func(certs.Blocks, error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-m.reports:
			take(next.blocks, next.err)
		}
	}
}

func pairBlocks(pair pki.Pair) certs.Blocks {
	return certs.Blocks{Certificate: pair.Certificate, Key: pair.Key}
}

func rootsBlocks(cas ...*pki.CA) certs.Blocks {
	var blocks certs.Blocks
	for _, ca := range cas {
		blocks.CAs = append(blocks.CAs, ca.PEM().Certificate...)
	}
	return blocks
}

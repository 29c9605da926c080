package certs_test

import (
	"context"
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
)

func TestInvalidCertificateKeepsLastGoodOne(t *testing.T) {
	ca := newCA(t, "CA")
	first := clientPair(t, ca, "agent-a", pki.Validity{})
	other := clientPair(t, ca, "agent-a", pki.Validity{})

	bad := map[string]struct {
		blocks certs.Blocks
		want   string
	}{
		"unparsable": {certs.Blocks{Certificate: []byte("rubbish"), Key: first.Key}, "failed to find any PEM data"},
		"not a certificate in PEM": {certs.Blocks{
			Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("rubbish")}), Key: first.Key}, "x509: malformed"},
		"key of another":                {certs.Blocks{Certificate: first.Certificate, Key: other.Key}, "private key does not match"},
		"no key":                        {certs.Blocks{Certificate: other.Certificate}, "key input"},
		"expired where ours is not yet": {pairBlocks(clientPair(t, ca, "agent-a", past())), "valid only from"},
	}
	for name, test := range bad {
		t.Run(name, func(t *testing.T) {
			place := newMemory(pairBlocks(first))
			source := run(t, certs.Options{Pair: place, PairHint: "issue it again"}).ready(t)
			require.Contains(t, source.log.next(t), "Loaded TLS certificates")

			place.put(test.blocks)
			line := source.log.next(t)
			require.Contains(t, line, "keeping the last good ones")
			require.Contains(t, line, test.want)
			require.Contains(t, line, "issue it again")
			require.Equal(t, serialOf(t, first), source.serial(t))
			require.Equal(t, 1.0, source.value(t, reloads, "test", "failure"))

			place.put(test.blocks) // the same again is no news
			good := clientPair(t, ca, "agent-a", pki.Validity{})
			source.after(t, func() { place.put(pairBlocks(good)) })
			require.Contains(t, source.log.next(t), "Loaded TLS certificates")
			source.log.requireNone(t)
			require.Equal(t, serialOf(t, good), source.serial(t))
			require.Equal(t, 1.0, source.value(t, reloads, "test", "failure"))
			require.Equal(t, 1.0, source.value(t, reloads, "test", "success"))
		})
	}
}

func TestInvalidCAsKeepLastGoodOnes(t *testing.T) {
	old, renewed := newCA(t, "old"), newCA(t, "new")
	broken := append(rootsBlocks(renewed).CAs,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("rubbish")})...)
	place := newMemory(rootsBlocks(old))
	source := run(t, certs.Options{Roots: place}).ready(t)
	require.Contains(t, source.log.next(t), "Loaded TLS certificates")

	for _, blocks := range []certs.Blocks{{}, {CAs: []byte("\n")}, {CAs: broken}, {CAs: old.PEM().Key}} {
		place.put(blocks)
	}
	require.Contains(t, source.log.next(t), "no certificate in PEM form") // and once only for three empty ones in a row
	require.Contains(t, source.log.next(t), "certificate 2: x509")
	require.Contains(t, source.log.next(t), "no certificate in PEM form")
	material, err := source.Current()
	require.NoError(t, err)
	require.Len(t, material.CAs, 1)
	require.Equal(t, "CN=old", material.CAs[0].Subject.String())

	source.after(t, func() { place.put(rootsBlocks(old, renewed)) })
	material, err = source.Current()
	require.NoError(t, err)
	require.Len(t, material.CAs, 2)
	require.Equal(t, 3.0, source.value(t, reloads, "test-ca", "failure"))
}

func TestCertificateAndCAsReloadIndependently(t *testing.T) {
	ca := newCA(t, "CA")
	pairs := newMemory(pairBlocks(clientPair(t, ca, "agent-a", pki.Validity{})))
	roots := newMemory(rootsBlocks(ca))
	source := run(t, certs.Options{Pair: pairs, Roots: roots}).ready(t)

	roots.put(certs.Blocks{})
	source.log.await(t, "keeping the last good ones")
	renewed := clientPair(t, ca, "agent-a", pki.Validity{})
	source.after(t, func() { pairs.put(pairBlocks(renewed)) })
	require.Equal(t, serialOf(t, renewed), source.serial(t))
	loaded, err := renewed.TLS()
	require.NoError(t, err)
	require.Equal(t, float64(loaded.Leaf.NotAfter.Unix()), source.value(t, notAfter, "test"))
	require.Equal(t, float64(ca.Certificate().NotAfter.Unix()), source.value(t, notAfter, "test-ca"))
}

func TestExpiredCertificateIsUsedIfNoOther(t *testing.T) {
	place := newMemory(pairBlocks(clientPair(t, newCA(t, "CA"), "agent-a", past())))
	source := run(t, certs.Options{Pair: place}).ready(t)
	line := source.log.next(t)
	require.Contains(t, line, "level=WARN")
	require.Contains(t, line, "valid=false")
}

func TestWaitErrorHasHint(t *testing.T) {
	place := &memory{reports: make(chan report, 10)}
	source := run(t, certs.Options{Pair: place, PairHint: "create it with: argocd-agentctl pki issue agent", Roots: newMemory(rootsBlocks(newCA(t, "CA")))})
	_, err := source.Current()
	require.ErrorContains(t, err, "the test has not been read yet")

	place.reports <- report{err: errors.New("not found")}
	source.log.await(t, "TLS certificates missing; waiting for them")
	place.reports <- report{err: errors.New("not found")}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err = source.Wait(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, `"test": the test: not found: create it with: argocd-agentctl pki issue agent`)
	require.NotContains(t, err.Error(), "test-ca", "the other half is there")

	waited := make(chan error, 1)
	go func() { waited <- source.Wait(t.Context()) }()
	place.put(pairBlocks(clientPair(t, newCA(t, "CA"), "agent-a", pki.Validity{})))
	require.NoError(t, <-waited)
	require.NotContains(t, source.log.await(t, "name=test "), "missing", "the same cause is logged once")
}

func TestNewRefusesMissingOptions(t *testing.T) {
	_, logger := newJournal()
	_, err := certs.New(certs.Options{Name: "agent", Logger: logger})
	require.ErrorContains(t, err, "neither a certificate nor trusted CAs")
	_, err = certs.New(certs.Options{Pair: newMemory(certs.Blocks{})})
	require.ErrorContains(t, err, "required")
}

type unwatchable struct{ *memory }

func (unwatchable) Watch(context.Context, func(certs.Blocks, error)) error {
	return errors.New("too many open files")
}

func TestRunFailsIfOriginCannotBeWatched(t *testing.T) {
	_, logger := newJournal()
	source, err := certs.New(certs.Options{Name: "agent", Logger: logger, Pair: unwatchable{}, Roots: newMemory(certs.Blocks{})})
	require.NoError(t, err)
	require.ErrorContains(t, source.Run(t.Context()), `"agent": watch the test: too many open files`)
}

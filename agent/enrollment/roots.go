package enrollment

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs/secret"
)

// trust has the agent trust the CAs that an answer of the principal has, if the principal's certificate of this connection is by one of them: a SPIRE
// server replaces its CA every few hours, and nobody else would tell the agent. What is wrong with them is logged, and changes nothing: the
// agent's certificate is good all the same. An error is one of the API server.
func (e *Enroller) trust(ctx context.Context, roots []byte, from *peer.Peer) error {
	if len(roots) == 0 || e.options.RootsSecret == "" || e.options.ServerID.IsZero() {
		return nil
	}
	if err := e.vouches(roots, from); err != nil {
		e.sayUnusable(fmt.Errorf("the principal's answer: %w", err))
		return nil
	}
	switch changed, err := e.replaceRoots(ctx, roots); {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		e.sayUnusable(fmt.Errorf("%w: let the agent get and patch that Secret", err))
	case err != nil:
		return err
	case changed:
		e.unusable = ""
		e.options.Logger.Info("Trusted CAs replaced by those of the principal", "secret", e.options.RootsSecret)
	}
	return nil
}

// replaceRoots writes CAs to where the agent has its own from, and reports whether they are others than those.
func (e *Enroller) replaceRoots(ctx context.Context, roots []byte) (changed bool, err error) {
	found, err := e.options.Secrets.Get(ctx, e.options.RootsSecret, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	key := secret.CAKey
	if held, err := secret.RootsBlocks(found.Data); err == nil {
		if bytes.Equal(held.CAs, roots) {
			return false, nil
		}
		if bytes.Equal(held.CAs, found.Data[secret.CertificateKey]) {
			key = secret.CertificateKey // which wins if it is a CA's
		}
	}
	return true, e.patch(ctx, e.options.RootsSecret, map[string]any{
		"metadata": map[string]any{"resourceVersion": found.ResourceVersion}, "data": map[string][]byte{key: roots},
	})
}

// vouches returns nil if the principal that a connection is to has its SPIFFE ID by these CAs.
func (e *Enroller) vouches(roots []byte, from *peer.Peer) error {
	secured, ok := from.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return errors.New("it has CAs, and came without TLS")
	}
	if err := certs.VerifyServer(secured.State.PeerCertificates, roots, e.options.ServerID); err != nil {
		return fmt.Errorf("its CAs are not those of the principal's own certificate: %w", err)
	}
	return nil
}

// sayUnusable logs once why the principal's CAs are not taken.
func (e *Enroller) sayUnusable(reason error) {
	if text := reason.Error(); text != e.unusable {
		e.unusable = text
		e.options.Logger.Warn("The principal's CAs not taken; keeping those in the Secret", "secret", e.options.RootsSecret, "error", text)
	}
}

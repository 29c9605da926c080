// Package jwtsvid has both ends of authentication by JWT-SVIDs, for where a load balancer ends TLS and no client certificate gets through.
// Every stream comes with a token of its own: who listens in on one has nothing that opens another.
//
// See https://github.com/spiffe/spiffe/blob/main/standards/JWT-SVID.md.
package jwtsvid

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// Options configure a Verifier.
type Options struct {
	// Socket is the address of the SPIFFE Workload API, which has the keys that tokens are signed with.
	Socket string
	// Audience is what tokens have to be for.
	Audience string
	// Changed is called when there are other keys than before. It must not block.
	Changed func()
	Logger  *slog.Logger
}

// Verifier verifies JWT-SVIDs by the bundles of the Workload API. It is safe for concurrent use.
type Verifier struct {
	options Options
	started time.Time     // what was shown before is not remembered
	known   chan struct{} // closed when there are bundles

	mu      sync.Mutex
	bundles *jwtbundle.Set                  // nil before the first. Guarded by mu
	failure error                           // why there are none, or no newer ones. Guarded by mu
	shown   map[[sha256.Size]byte]time.Time // digests of tokens that were shown, and when they expire. Guarded by mu
	sweep   int                             // how many tokens there may be before those that expired are forgotten. Guarded by mu
}

var _ identity.Tokens = (*Verifier)(nil)

// firstSweep is how many tokens are remembered before those that expired are forgotten.
const firstSweep = 1024

// NewVerifier returns a verifier that accepts no token until Run has found the bundles.
func NewVerifier(o Options) *Verifier {
	return &Verifier{
		options: o, started: time.Now(), known: make(chan struct{}), shown: make(map[[sha256.Size]byte]time.Time), sweep: firstSweep,
	}
}

// Run follows the bundles until the context ends, which is no error.
func (v *Verifier) Run(ctx context.Context) error {
	err := workloadapi.WatchJWTBundles(ctx, v, certs.WorkloadOptions(v.options.Socket)...)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was ended
	}
	return fmt.Errorf("JWT bundles of the SPIFFE Workload API at %s: %w", v.options.Socket, certs.ExplainWorkload(err))
}

// OnJWTBundlesUpdate takes in the keys that there are now.
func (v *Verifier) OnJWTBundlesUpdate(bundles *jwtbundle.Set) {
	v.mu.Lock()
	first := v.bundles == nil
	v.bundles, v.failure = bundles, nil
	v.mu.Unlock()
	v.options.Logger.Info("Loaded JWT bundles", "trust_domains", bundles.Len())
	if first {
		close(v.known)
	}
	v.options.Changed()
}

// OnJWTBundlesWatchError keeps what there was.
func (v *Verifier) OnJWTBundlesWatchError(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	err = certs.ExplainWorkload(err)
	v.mu.Lock()
	repeated := v.failure != nil && v.failure.Error() == err.Error()
	v.failure = err
	v.mu.Unlock()
	if !repeated {
		v.options.Logger.Warn("Failed to load JWT bundles; keeping the last ones", "error", err)
	}
}

// Wait waits until there are bundles, and reports whether that came before the end of the context.
func (v *Verifier) Wait(ctx context.Context) bool {
	select {
	case <-v.known:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ready returns nil once there are bundles, and otherwise why there are none.
func (v *Verifier) Ready() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.bundles != nil:
		return nil
	case v.failure != nil:
		return v.failure
	default:
		return fmt.Errorf("the SPIFFE Workload API at %s has not answered yet", v.options.Socket)
	}
}

// Prove implements identity.Tokens.
func (v *Verifier) Prove(token string) (identity.Proof, error) {
	svid, err := v.parse(token)
	if err != nil {
		return identity.Proof{}, err
	}
	if err := v.requireNew(svid); err != nil {
		return identity.Proof{}, err
	}
	key, err := digest(token)
	if err != nil {
		return identity.Proof{}, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, again := v.shown[key]; again {
		return identity.Proof{}, fmt.Errorf("that of %q was shown before: each stream needs one of its own", svid.ID)
	}
	v.forgetExpired()
	v.shown[key] = svid.Expiry.Add(leeway)
	return identity.Proof{URIs: []string{svid.ID.String()}, NotAfter: svid.Expiry}, nil
}

const (
	// maxAge is how old a token may be when it is shown. Agents fetch one for each stream, so the rest is for clocks that differ, as the library
	// has it for those that are ahead. At another principal, which does not know what was shown here, a token is of use for that long.
	maxAge = time.Minute
	// startLeeway is for clocks that differ while a principal starts, so that agents need not come twice after each restart.
	startLeeway = 5 * time.Second
)

// requireNew refuses a token that may well have been shown elsewhere: to another principal, or to the one that ran here before.
func (v *Verifier) requireNew(svid *jwtsvid.SVID) error {
	seconds, ok := svid.Claims["iat"].(float64)
	if !ok {
		return fmt.Errorf("that of %q does not say when it was issued, by the claim iat, as SPIRE's do", svid.ID)
	}
	issued := time.Unix(int64(seconds), 0)
	at := issued.UTC().Format(time.RFC3339)
	switch {
	case time.Since(issued) > maxAge:
		return fmt.Errorf("that of %q was issued at %s, and a stream needs one of the last %v: compare the clocks", svid.ID, at, maxAge)
	case issued.Before(v.started.Add(-startLeeway)):
		return fmt.Errorf("that of %q was issued at %s, before this principal started, and may have been shown to the one before: connect again with another, "+
			"and compare the clocks if that is refused too", svid.ID, at)
	}
	return nil
}

// digest tells tokens apart, by the bytes that the signature is of. A token's text does not: whoever has one can write it in other ways that are
// as good, with the other signature that ECDSA has for each, or with other digits where base64 leaves bits over.
func digest(token string) ([sha256.Size]byte, error) {
	_, rest, _ := strings.Cut(token, ".")
	claims, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(claims)
	if err != nil {
		return [sha256.Size]byte{}, errors.New("its claims are not in base64")
	}
	return sha256.Sum256(raw), nil
}

// leeway is for how long after its end the library takes a token.
const leeway = time.Minute

// forgetExpired keeps the memory of tokens that were shown within bounds. mu is held.
func (v *Verifier) forgetExpired() {
	if len(v.shown) < v.sweep {
		return
	}
	now := time.Now()
	for key, expiry := range v.shown {
		if now.After(expiry) {
			delete(v.shown, key)
		}
	}
	v.sweep = max(firstSweep, 2*len(v.shown))
}

// VerifyToken implements identity.Tokens.
func (v *Verifier) VerifyToken(token string) error {
	_, err := v.parse(token)
	return err
}

func (v *Verifier) parse(token string) (*jwtsvid.SVID, error) {
	v.mu.Lock()
	bundles := v.bundles
	v.mu.Unlock()
	if bundles == nil {
		return nil, v.Ready()
	}
	svid, err := jwtsvid.ParseAndValidate(token, bundles, []string{v.options.Audience})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: it has to be for the audience %q, by a trust domain that the principal's is federated with", err, v.options.Audience)
	case time.Now().After(svid.Expiry):
		return nil, fmt.Errorf("that of %q expired at %s: compare the clocks", svid.ID, svid.Expiry.UTC().Format(time.RFC3339))
	}
	return svid, nil
}

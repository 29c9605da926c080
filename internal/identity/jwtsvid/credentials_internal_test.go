package jwtsvid

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
)

// workloadAPI gives tokens of a minute, or fails. The real one is for the end-to-end tests, which have no time of their own.
type workloadAPI struct {
	signer jose.Signer

	mu      sync.Mutex
	failure error // guarded by mu
	asked   int   // guarded by mu
}

func newWorkloadAPI(t *testing.T) *workloadAPI {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	require.NoError(t, err)
	return &workloadAPI{signer: signer}
}

// FetchJWTSVID implements source.
func (w *workloadAPI) FetchJWTSVID(_ context.Context, params jwtsvid.Params) (*jwtsvid.SVID, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.failure != nil {
		return nil, w.failure
	}
	text, err := jwt.Signed(w.signer).Claims(jwt.Claims{
		Subject: "spiffe://spoke.test/agent/berlin", Audience: append(jwt.Audience{params.Audience}, params.ExtraAudiences...),
		IssuedAt: jwt.NewNumericDate(time.Now()), Expiry: jwt.NewNumericDate(time.Now().Add(time.Minute)),
	}).Serialize()
	if err != nil {
		return nil, err
	}
	return jwtsvid.ParseInsecure(text, []string{params.Audience})
}

func (w *workloadAPI) fails(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = err
}

// calls is how often it was asked.
func (w *workloadAPI) calls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Close implements source.
func (*workloadAPI) Close() error { return nil }

// runs runs credentials until the function that it returns is called.
func runs(t *testing.T, api *workloadAPI) (c *Credentials, log *logtest.Log, stop func()) {
	t.Helper()
	log = new(logtest.Log)
	c = newCredentials(api, "hub", slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	return c, log, func() { cancel(); running.Wait() }
}

// token is that of one more stream.
func token(t *testing.T, c *Credentials) string {
	t.Helper()
	metadata, err := c.GetRequestMetadata(t.Context())
	require.NoError(t, err)
	return metadata["authorization"]
}

// given reports whether there is something to receive, once nothing else happens any more.
func given(from <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-from:
		return true
	default:
		return false
	}
}

// A session goes on by its token while there is no other, to the end of the token. Only what is there is announced.
func TestRenewalIsAnnouncedWhenThereIsAToken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newWorkloadAPI(t)
		c, log, stop := runs(t, api)
		defer stop()
		renewed := c.Renewed()
		first := token(t, c)
		<-time.After(39 * time.Second)
		require.False(t, given(renewed))
		require.Equal(t, 1, api.calls())

		api.fails(errors.New("no socket"))
		<-time.After(11 * time.Second)
		require.False(t, given(renewed))
		require.Equal(t, 7, api.calls())
		require.Equal(t, 1, strings.Count(log.String(), "no socket"), "once")
		require.Contains(t, log.String(), "expires=2000-01-01T00:01:00Z")

		api.fails(nil)
		<-time.After(2 * time.Second)
		require.True(t, given(renewed))
		require.Equal(t, 8, api.calls())
		next := token(t, c)
		require.Equal(t, 8, api.calls(), "the next stream has that token")
		require.NotEqual(t, first, next)
		require.NotEqual(t, next, token(t, c), "and no other stream has")

		renewed = c.Renewed()
		<-time.After(41 * time.Second)
		require.True(t, given(renewed))
	})
}

// After the end of the newest token there is no stream that it could be renewed for.
func TestRenewalIsGivenUpAtTheTokensEnd(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newWorkloadAPI(t)
		c, _, stop := runs(t, api)
		defer stop()
		renewed := c.Renewed()
		token(t, c)
		api.fails(errors.New("no socket"))
		<-time.After(time.Hour)
		require.False(t, given(renewed))
		require.Equal(t, 12, api.calls())
		api.fails(nil)
		token(t, c)
		<-time.After(41 * time.Second)
		require.True(t, given(renewed))
	})
}

// A principal takes no token that is a minute old.
func TestSpareTokenIsNotKeptForLong(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		api := newWorkloadAPI(t)
		c, _, stop := runs(t, api)
		defer stop()
		renewed := c.Renewed()
		token(t, c)
		<-time.After(time.Hour)
		require.True(t, given(renewed))
		require.Equal(t, 2, api.calls())
		token(t, c)
		require.Equal(t, 3, api.calls())
	})
}

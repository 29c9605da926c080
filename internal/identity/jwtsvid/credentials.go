package jwtsvid

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc/credentials"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/signal"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// Credentials give each stream of a client a JWT-SVID of its own, from the Workload API. They are safe for concurrent use.
type Credentials struct {
	source   source
	audience string
	logger   *slog.Logger
	renewed  signal.Broadcast
	shown    signal.Signal // a stream has got a token

	mu      sync.Mutex
	last    times         // of the newest token that a stream has got. Guarded by mu
	spare   *jwtsvid.SVID // that no stream has got yet, or nil. Guarded by mu
	fetched time.Time     // when the spare one was. Guarded by mu
}

// times are when a token expires, and when there is to be another.
type times struct{ expiry, renewal time.Time }

// source is where tokens come from: the client of a Workload API.
type source interface {
	FetchJWTSVID(ctx context.Context, params jwtsvid.Params) (*jwtsvid.SVID, error)
	Close() error
}

var _ credentials.PerRPCCredentials = (*Credentials)(nil)

// NewCredentials returns credentials of this workload, by the Workload API at a socket, for an audience. Run must run, and Close be called.
func NewCredentials(ctx context.Context, socket, audience string, logger *slog.Logger) (*Credentials, error) {
	client, err := workloadapi.New(ctx, certs.WorkloadOptions(socket)...)
	if err != nil {
		return nil, fmt.Errorf("SPIFFE Workload API at %s: %w", socket, err)
	}
	return newCredentials(client, audience, logger), nil
}

func newCredentials(from source, audience string, logger *slog.Logger) *Credentials {
	return &Credentials{source: from, audience: audience, logger: logger, shown: signal.New()}
}

// Close closes the connection to the Workload API.
func (c *Credentials) Close() error { return c.source.Close() }

const (
	// nonceSize makes tokens different: a SPIRE agent gives the same one again for the same audiences, for half of its life.
	nonceSize = 16
	// fetchTimeout is how long the Workload API may take for a token: a stream that waits for one has no deadline.
	fetchTimeout = 10 * time.Second
	// retryEvery is between attempts to get the next token.
	retryEvery = 2 * time.Second
	// maxSpare is how old a spare token may be: a principal takes none that is a minute old.
	maxSpare = 20 * time.Second
)

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (c *Credentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	svid := c.takeSpare()
	if svid == nil {
		var err error
		if svid, err = c.fetch(ctx); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	c.last = times{svid.Expiry, time.Now().Add(time.Until(svid.Expiry) * 2 / 3)}
	c.mu.Unlock()
	c.shown.Give()
	return map[string]string{"authorization": "Bearer " + svid.Marshal()}, nil
}

// takeSpare returns the spare token, which is then none any more, or nil.
func (c *Credentials) takeSpare() *jwtsvid.SVID {
	c.mu.Lock()
	defer c.mu.Unlock()
	svid := c.spare
	c.spare = nil
	if time.Since(c.fetched) > maxSpare {
		return nil
	}
	return svid
}

func (c *Credentials) keepSpare(svid *jwtsvid.SVID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spare, c.fetched = svid, time.Now()
}

func (c *Credentials) newest() times {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// fetch gets a token of the Workload API.
func (c *Credentials) fetch(ctx context.Context) (*jwtsvid.SVID, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	svid, err := c.source.FetchJWTSVID(ctx, jwtsvid.Params{Audience: c.audience, ExtraAudiences: []string{"stream:" + hex.EncodeToString(nonce)}})
	if err != nil {
		return nil, fmt.Errorf("JWT-SVID of the SPIFFE Workload API: %w", certs.ExplainWorkload(err))
	}
	return svid, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]: who reads a token before the principal does can use it.
func (c *Credentials) RequireTransportSecurity() bool { return true }

// Renewed returns a channel that is closed when there is a token to show for those that streams have got before.
func (c *Credentials) Renewed() <-chan struct{} { return c.renewed.Changed() }

// Run gets another token when a third of the newest one's life is left, and announces it when it has it, until the context ends. While the
// Workload API does not answer, streams go on by what they have.
func (c *Credentials) Run(ctx context.Context) {
	due, said := time.NewTimer(0), ""
	defer due.Stop()
	due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.shown:
			due.Reset(time.Until(c.newest().renewal))
			continue
		case <-due.C:
		}
		svid, err := c.fetch(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			said = ""
			c.keepSpare(svid)
			c.renewed.Give()
			continue
		case !time.Now().Before(c.newest().expiry):
			continue // the streams have ended; the next one asks itself
		case err.Error() != said:
			said = err.Error()
			c.logger.Warn("Failed to get the next JWT-SVID; streams go on by the last one until it expires", "error", err,
				"expires", c.newest().expiry.UTC().Format(time.RFC3339))
		}
		due.Reset(retryEvery)
	}
}

package jwtsvid

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
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
	client   *workloadapi.Client
	audience string
	renewed  signal.Broadcast

	mu    sync.Mutex
	timer *time.Timer // until the newest token is to be followed by another. Guarded by mu
}

var _ credentials.PerRPCCredentials = (*Credentials)(nil)

// NewCredentials returns credentials of this workload, by the Workload API at a socket, for an audience. Close must be called.
func NewCredentials(ctx context.Context, socket, audience string) (*Credentials, error) {
	client, err := workloadapi.New(ctx, certs.WorkloadOptions(socket)...)
	if err != nil {
		return nil, fmt.Errorf("SPIFFE Workload API at %s: %w", socket, err)
	}
	return &Credentials{client: client, audience: audience}, nil
}

// Close closes the connection to the Workload API.
func (c *Credentials) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	return c.client.Close()
}

// nonceSize makes tokens different: a SPIRE agent gives the same one again for the same audiences, for half of its life.
const nonceSize = 16

// fetchTimeout is how long the Workload API may take for a token: a stream that waits for one has no deadline.
const fetchTimeout = 10 * time.Second

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (c *Credentials) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // it never fails
	svid, err := c.client.FetchJWTSVID(ctx, jwtsvid.Params{Audience: c.audience, ExtraAudiences: []string{"stream:" + hex.EncodeToString(nonce)}})
	if err != nil {
		return nil, fmt.Errorf("JWT-SVID of the SPIFFE Workload API: %w", certs.ExplainWorkload(err))
	}
	c.renewBefore(svid.Expiry)
	return map[string]string{"authorization": "Bearer " + svid.Marshal()}, nil
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]: who reads a token before the principal does can use it.
func (c *Credentials) RequireTransportSecurity() bool { return true }

// renewBefore announces a third of its life before the end of the newest token that there is to be another.
func (c *Credentials) renewBefore(expiry time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(time.Until(expiry)*2/3, c.renewed.Give)
}

// Renewed returns a channel that is closed when it is time to show a newer token.
func (c *Credentials) Renewed() <-chan struct{} { return c.renewed.Changed() }

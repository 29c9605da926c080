package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// WorkloadPair returns an Origin that is the X.509-SVID which the SPIFFE Workload API at a socket gives to this process: the first, if
// there are several. The socket is an address such as unix:///run/spire/agent.sock.
func WorkloadPair(socket string) Origin {
	return workload{socket, "X.509-SVID", func(c *workloadapi.X509Context) (Blocks, error) {
		certificate, key, err := c.DefaultSVID().Marshal()
		return Blocks{Certificate: certificate, Key: key}, err
	}}
}

// WorkloadBundles returns an Origin that is the bundles which the SPIFFE Workload API at a socket gives to this process: that of its own
// trust domain, and of those which its registration is federated with.
func WorkloadBundles(socket string) Origin {
	return workload{socket, "trust bundles", func(c *workloadapi.X509Context) (Blocks, error) {
		blocks := Blocks{Bundles: make(map[string][]byte)}
		for _, bundle := range c.Bundles.Bundles() {
			for _, ca := range bundle.X509Authorities() {
				text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
				blocks.Bundles[bundle.TrustDomain().Name()] = append(blocks.Bundles[bundle.TrustDomain().Name()], text...)
			}
		}
		return blocks, nil
	}}
}

// How often a Workload API is asked that does not answer. The library's own backoff goes up to half a minute, and gRPC's below it to two:
// an X.509-SVID of a few minutes could end while the SPIRE agent has long been back.
const (
	firstWorkloadBackoff = 250 * time.Millisecond
	lastWorkloadBackoff  = 5 * time.Second
	// workloadTimeout is how long a socket may take to answer at all.
	workloadTimeout = 10 * time.Second
)

// workloadBackoff is between two questions to the Workload API. It is the library's BackoffStrategy and its Backoff.
type workloadBackoff struct{ last time.Duration }

// NewBackoff implements workloadapi.BackoffStrategy.
func (workloadBackoff) NewBackoff() workloadapi.Backoff { return new(workloadBackoff) }

// Next returns how long to wait.
func (b *workloadBackoff) Next() time.Duration {
	b.last = min(max(2*b.last, firstWorkloadBackoff), lastWorkloadBackoff)
	return b.last
}

// Reset begins again: there was an answer.
func (b *workloadBackoff) Reset() { b.last = 0 }

// workload is an Origin that takes one thing of the Workload API.
type workload struct {
	socket, what string
	blocks       func(*workloadapi.X509Context) (Blocks, error)
}

func (w workload) String() string {
	return fmt.Sprintf("%s of the SPIFFE Workload API at %s", w.what, w.socket)
}

// Watch follows the Workload API. While it does not answer, it is asked again.
func (w workload) Watch(ctx context.Context, report func(Blocks, error)) error {
	err := workloadapi.WatchX509Context(ctx, workloadWatcher{w, report}, WorkloadOptions(w.socket)...)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end
	}
	return ExplainWorkload(err)
}

// WorkloadOptions are those by which the Workload API at a socket is asked, with a backoff of seconds.
func WorkloadOptions(socket string) []workloadapi.ClientOption {
	return []workloadapi.ClientOption{
		workloadapi.WithAddr(socket), workloadapi.WithBackoffStrategy(workloadBackoff{}),
		workloadapi.WithDialOptions(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstWorkloadBackoff, Multiplier: 2, Jitter: 0.2, MaxDelay: lastWorkloadBackoff},
			MinConnectTimeout: workloadTimeout,
		})),
	}
}

type workloadWatcher struct {
	workload workload
	report   func(Blocks, error)
}

// OnX509ContextUpdate takes in what the Workload API has now.
func (w workloadWatcher) OnX509ContextUpdate(c *workloadapi.X509Context) {
	w.report(w.workload.blocks(c))
}

// OnX509ContextWatchError reports why it does not say.
func (w workloadWatcher) OnX509ContextWatchError(err error) {
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return
	}
	w.report(Blocks{}, ExplainWorkload(err))
}

// ExplainWorkload says what to do about an error of the Workload API.
func ExplainWorkload(err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.PermissionDenied:
		return fmt.Errorf("%s: register this workload with SPIRE, by an entry whose selectors match it", s.Message())
	case codes.Unavailable:
		return fmt.Errorf("%w: %s: see whether the SPIRE agent runs, and whether its socket is where --spiffe-endpoint-socket says", ErrSilent, s.Message())
	case codes.InvalidArgument, codes.Unimplemented:
		return fmt.Errorf("%s: what answers there is no SPIFFE Workload API, or refuses ours: see --spiffe-endpoint-socket", s.Message())
	default:
		return err
	}
}

// verifySVID returns nil if certificates are an X.509-SVID of a trust domain, by the bundle of that one: a CA of one trust domain
// cannot speak for another.
func verifySVID(presented []*x509.Certificate, bundles *x509bundle.Set) error {
	if _, _, err := x509svid.Verify(presented, bundles); err != nil {
		return fmt.Errorf("it is an X.509-SVID not by the bundle of its trust domain: %v", err) //nolint:errorlint // its CA may well be known, for another one
	}
	return nil
}

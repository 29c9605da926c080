package certs

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
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

// workload is an Origin that takes one thing of the Workload API.
type workload struct {
	socket, what string
	blocks       func(*workloadapi.X509Context) (Blocks, error)
}

func (w workload) String() string {
	return fmt.Sprintf("%s of the SPIFFE Workload API at %s", w.what, w.socket)
}

// Watch follows the Workload API. While it does not answer, the library asks again, with a backoff of up to 30 s.
func (w workload) Watch(ctx context.Context, report func(Blocks, error)) error {
	err := workloadapi.WatchX509Context(ctx, workloadWatcher{w, report}, workloadapi.WithAddr(w.socket))
	if ctx.Err() != nil {
		return nil
	}
	return err
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
	switch s := status.Convert(err); {
	case errors.Is(err, context.Canceled), s.Code() == codes.Canceled:
	case s.Code() == codes.PermissionDenied:
		w.report(Blocks{}, fmt.Errorf("%s: register this workload with SPIRE, by an entry whose selectors match it", s.Message()))
	case s.Code() == codes.Unavailable:
		w.report(Blocks{}, fmt.Errorf("%s: see whether the SPIRE agent runs, and whether its socket is where --spiffe-endpoint-socket says", s.Message()))
	default:
		w.report(Blocks{}, err)
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

package certs_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
)

// workloadAPI is a Workload API that says what a test has it say, to all who ask, until that changes.
type workloadAPI struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	path string
	stop func()

	mu      sync.Mutex // guards all below
	answer  *workload.X509SVIDResponse
	failure error
	change  chan struct{} // closed when they change
}

// newWorkloadAPI returns one that does not run, and says nothing.
func newWorkloadAPI(t *testing.T) *workloadAPI {
	t.Helper()
	folder, err := os.MkdirTemp("", "spiffe") //nolint:usetesting // the test's own has too long a name for a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	return &workloadAPI{path: filepath.Join(folder, "agent.sock"), change: make(chan struct{})}
}

// start has it run until stop is called, or the test is over.
func (w *workloadAPI) start(t *testing.T) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", w.path)
	require.NoError(t, err)
	server, served := grpc.NewServer(), make(chan error, 1)
	workload.RegisterSpiffeWorkloadAPIServer(server, w)
	go func() { served <- server.Serve(listener) }()
	w.stop = sync.OnceFunc(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	t.Cleanup(w.stop)
}

// says has it say something else from now on.
func (w *workloadAPI) says(answer *workload.X509SVIDResponse, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer, w.failure = answer, failure
	close(w.change)
	w.change = make(chan struct{})
}

// FetchX509SVID implements the Workload API.
func (w *workloadAPI) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	for {
		w.mu.Lock()
		answer, failure, change := w.answer, w.failure, w.change
		w.mu.Unlock()
		if failure != nil {
			return failure
		}
		if answer != nil {
			if err := stream.Send(answer); err != nil {
				return err
			}
		}
		select {
		case <-change:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// svid is an answer: an X.509-SVID of the hub's, and the bundles of it and of others.
func svid(t *testing.T, hub trustDomain, federated map[string]trustDomain) *workload.X509SVIDResponse {
	t.Helper()
	pair := hub.issue(t, principalID)
	certificate, _ := pem.Decode(pair.Certificate)
	key, _ := pem.Decode(pair.Key)
	answer := &workload.X509SVIDResponse{
		Svids: []*workload.X509SVID{{SpiffeId: principalID, X509Svid: certificate.Bytes, X509SvidKey: key.Bytes, Bundle: hub.certificate.Raw}},

		FederatedBundles: make(map[string][]byte),
	}
	for name, domain := range federated {
		answer.FederatedBundles["spiffe://"+name] = domain.certificate.Raw
	}
	return answer
}

// runs follows the Workload API until the test is over.
func (w *workloadAPI) runs(t *testing.T) *fixture {
	t.Helper()
	return run(t, certs.Options{Pair: certs.WorkloadPair("unix://" + w.path), Roots: certs.WorkloadBundles("unix://" + w.path)})
}

// twice waits until each half of the material, the certificate and the trusted CAs, has said a thing.
func (r *fixture) twice(t *testing.T, text string) {
	t.Helper()
	r.log.await(t, text)
	r.log.await(t, text)
}

func TestWorkloadAPIThatComesLate(t *testing.T) {
	hub := newTrustDomain(t, "hub.test")
	api := newWorkloadAPI(t)
	r := api.runs(t)
	r.twice(t, "TLS certificates missing; waiting for them")
	require.ErrorContains(t, r.Ready(), "X.509-SVID of the SPIFFE Workload API at unix://"+api.path+": no answer")
	require.ErrorContains(t, r.Ready(), "see whether the SPIRE agent runs, and whether its socket is where --spiffe-endpoint-socket says")

	api.start(t) // it answers, but not yet with what is wanted
	api.says(nil, status.Error(codes.PermissionDenied, "no identity issued"))
	r.twice(t, "no identity issued: register this workload with SPIRE, by an entry whose selectors match it")
	api.says(svid(t, hub, nil), nil)
	r.ready(t)
	r.twice(t, "Loaded TLS certificates")
	require.NoError(t, r.Ready())
	r.log.requireNone(t)
}

// A Workload API that takes the call and is silent is waited for, and who asks learns that.
func TestWorkloadAPIThatIsSlow(t *testing.T) {
	api := newWorkloadAPI(t)
	api.start(t)
	r := api.runs(t)
	require.ErrorContains(t, r.Ready(), "trust bundles of the SPIFFE Workload API at unix://"+api.path+" has not been read yet")
	api.says(svid(t, newTrustDomain(t, "hub.test"), nil), nil)
	r.ready(t)
}

// While it is away, or says that the workload has no identity any more, what was there last is kept, and the log says that once.
func TestLastSVIDIsKept(t *testing.T) {
	hub := newTrustDomain(t, "hub.test")
	api := newWorkloadAPI(t)
	api.start(t)
	api.says(svid(t, hub, nil), nil)
	r := api.runs(t).ready(t)
	r.twice(t, "Loaded TLS certificates")
	first := r.serial(t)

	api.stop()
	r.twice(t, "Failed to reload TLS certificates; keeping the last good ones")
	require.NoError(t, r.Ready())
	require.Equal(t, first, r.serial(t))

	api.start(t)
	r.after(t, func() { api.says(svid(t, hub, nil), nil) })
	require.NotEqual(t, first, r.serial(t))
	r.log.await(t, "Loaded TLS certificates") // the CAs are the same

	second := r.serial(t)
	api.says(nil, status.Error(codes.PermissionDenied, "no identity issued"))
	r.twice(t, "no identity issued: register this workload with SPIRE")
	require.Equal(t, second, r.serial(t))
	require.InDelta(t, 2, r.value(t, reloads, "test", "failure"), 0)
	r.log.requireNone(t)
}

// A bundle that loses a root ends the trust in what it issued, at once.
func TestWorkloadAPIDropsTrustDomain(t *testing.T) {
	hub, spoke := newTrustDomain(t, "hub.test"), newTrustDomain(t, "spoke.test")
	api := newWorkloadAPI(t)
	api.start(t)
	api.says(svid(t, hub, map[string]trustDomain{"spoke.test": spoke}), nil)
	r := api.runs(t).ready(t)
	r.twice(t, "Loaded TLS certificates")
	block, _ := pem.Decode(spoke.issue(t, agentID).Certificate)
	agent, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.NoError(t, r.VerifyClient([]*x509.Certificate{agent}))

	api.says(svid(t, hub, nil), nil)
	r.twice(t, "Loaded TLS certificates")
	require.ErrorContains(t, r.VerifyClient([]*x509.Certificate{agent}), "none of the CAs trusted here")
	material, err := r.Current()
	require.NoError(t, err)
	require.False(t, material.Bundles.Has(spiffeid.RequireTrustDomainFromString("spoke.test")))
}

// What is no Workload API ends the program, and says what to look at.
func TestSocketThatIsNoWorkloadAPI(t *testing.T) {
	api := newWorkloadAPI(t)
	api.start(t)
	api.says(nil, status.Error(codes.InvalidArgument, "security header missing from request"))
	_, logger := newJournal()
	source, err := certs.New(certs.Options{
		Name: "test", Logger: logger, Metrics: certs.NewMetrics(prometheus.NewRegistry()), Pair: certs.WorkloadPair("unix://" + api.path),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err = source.Run(ctx)
	require.ErrorContains(t, err, "watch X.509-SVID of the SPIFFE Workload API at unix://"+api.path+": security header missing from request")
	require.ErrorContains(t, err, "no SPIFFE Workload API, or refuses ours: see --spiffe-endpoint-socket")
	require.NoError(t, ctx.Err())
	require.NotContains(t, err.Error(), "rpc error")
}

package sessions_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/logging/logtest"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/authn"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/pki"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/peers"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// timeout is how long a test waits for what must happen.
	timeout = 2 * time.Minute
	facet   = converge.Facet("application")
	// reserved is a name that no agent may have.
	reserved = "argocd"
)

func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// memorySource is a source of one agent's objects, in memory.
type memorySource struct {
	mu      sync.Mutex
	objects map[converge.Key]converge.Object
}

func (s *memorySource) set(key converge.Key, payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = converge.Object{
		State: converge.State{UID: "uid", Version: converge.VersionOf([]byte(payload))}, Payload: []byte(payload),
	}
}

func (s *memorySource) All() iter.Seq2[converge.Key, converge.State] {
	return func(yield func(converge.Key, converge.State) bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for k, o := range s.objects {
			if !yield(k, o.State) {
				return
			}
		}
	}
}

func (s *memorySource) Project(k converge.Key) (converge.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[k]
	return o, ok
}

func (s *memorySource) ReportResult(context.Context, converge.Key, converge.Result) error { return nil }

func (s *memorySource) HasRefusedCondition(converge.Key) bool { return false }

// noopObserver ignores everything.
type noopObserver struct{}

func (noopObserver) Sent(converge.Message, time.Duration)                   {}
func (noopObserver) Acknowledged(converge.Ack, time.Duration)               {}
func (noopObserver) Applied(converge.Message, converge.Ack, time.Duration)  {}
func (noopObserver) Repaired(converge.Facet, converge.Key, converge.Result) {}
func (noopObserver) Removed(converge.Facet, converge.Key, converge.Result)  {}
func (noopObserver) DeletionsPaused(converge.PausedDeletions)               {}
func (noopObserver) DeletionsResumed(converge.Facet)                        {}
func (noopObserver) Compared(converge.Facet)                                {}

// fixture is a service and what it needs.
type fixture struct {
	*sessions.Service
	ca       *pki.CA
	roots    *roots        // what the service trusts
	material *certs.Source // of the service
	authn    *authn.Authenticator
	roster   *peers.Roster
	address  string
	registry *prometheus.Registry
	log      *logtest.Log
	stop     context.CancelFunc // ends Run
	stopped  chan struct{}      // closed when Run has returned
	sharing  func()             // is called when another agent has connected, while nobody else can

	drain time.Duration // within which agents are asked to connect elsewhere

	withoutCluster atomic.Bool // agents have no cluster Secret
	forgotten      chan string // agents
	reached        chan string // agents and the limits that they reached
	unknown        sync.Map    // agents => why nobody knows whether they are known, nil if they are not

	registers  sync.Map    // agents => why they cannot register, or how long that takes; nil if they can at once
	registered chan string // agents that could, and what they said of their clusters

	modes sync.Map // agents => what the hub says of theirs

	synced chan struct{} // closed when all of the hub's objects are known

	behind  chan struct{} // closed when the sources show what agents have seen; nil if they do
	awaited atomic.Uint64 // the revision of that

	mu      sync.Mutex
	sources map[string]*memorySource // by agent
}

// newFixture makes a service that does not run, in which so many sessions may begin in a second, or any number.
func newFixture(t *testing.T, perSecond ...int) *fixture {
	t.Helper()
	ca, err := pki.NewCA(pki.CAOptions{CommonName: "test"})
	require.NoError(t, err)
	o := &fixture{
		ca: ca, registry: prometheus.NewRegistry(), log: &logtest.Log{}, roster: peers.NewRoster(peers.Self{ID: "this"}, authn.ErrSuperseded),
		stop: func() {}, stopped: make(chan struct{}), sharing: func() {}, sources: make(map[string]*memorySource),
		registered: make(chan string, 100), forgotten: make(chan string, 1000), reached: make(chan string, 100), synced: make(chan struct{}),
	}
	close(o.synced)
	o.modes.Store("settled", "autonomous")
	pair, err := ca.IssueServer(pki.ServerOptions{CommonName: "principal", Addresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	require.NoError(t, err)
	o.roots = &roots{texts: make(chan []byte, 10)}
	o.roots.trust(ca)
	o.material = source(t, o.roots, pair)
	who, err := identity.New(identity.Options{Auth: identity.DefaultAuth, Reserved: []string{reserved}})
	require.NoError(t, err)
	o.authn = authn.New(authn.Options{Identify: who, Trust: identity.Verified(o.material, nil), Logger: slog.New(slog.NewTextHandler(o.log, nil))})
	o.Service = sessions.New(sessions.Options{
		Authn: o.authn, Roster: o.roster, Ready: o.ready, Hello: hello, Modes: []string{"managed", "autonomous"}, Registerer: o.registry,
		PerSecond: append(perSecond, 0)[0], Knows: o.knows, Register: o.register, Drain: func() time.Duration { return o.drain },
		OtherCluster: func(agent string) string { return map[string]string{"pushed": "argocd/pushed-secret"}[agent] },
		Mode:         o.modeOf,
		Logger:       slog.New(slog.NewTextHandler(o.log, nil)),
		HasCluster:   func(string) bool { return !o.withoutCluster.Load() }, Forget: func(agent string) { o.forgotten <- agent },
		Budget: func(agent string) *converge.Budget {
			return converge.NewBudget(converge.Limits{Changes: 10, Reached: func(limit, _ string) { o.reached <- agent + ": " + limit }})
		},
		Share: func(agent, _ string) converge.Options {
			o.sharing()
			return converge.Options{
				Sources:  map[converge.Facet]converge.SourceConfig{facet: {Source: o.memorySource(agent), Reach: o.reach}},
				Observer: noopObserver{},
			}
		},
	})
	return o
}

func (o *fixture) modeOf(agent string) string {
	mode, _ := o.modes.Load(agent)
	text, _ := mode.(string)
	return text
}

// run has the service run until the test is over.
func (o *fixture) run(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	o.stop = stop
	go func() {
		defer close(o.stopped)
		var parts sync.WaitGroup
		parts.Go(func() { o.authn.Run(ctx) })
		o.Run(ctx)
		parts.Wait()
	}()
	t.Cleanup(func() { stop(); <-o.stopped })
	for !o.Serving() { // who comes before that is refused; a test with a clock of its own loses no time here
		runtime.Gosched()
	}
}

// open makes a service, and has it run and listen until the test is over.
func open(t *testing.T) *fixture {
	t.Helper()
	o := newFixture(t)
	o.listen(t)
	o.run(t)
	return o
}

// listen lets agents connect.
func (o *fixture) listen(t *testing.T) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.address = listener.Addr().String()
	grpcServer := grpc.NewServer(
		append(sessions.ServerOptions(t.Context(), certs.ServerCredentials(certs.ServerOptions{Source: o.material})),
			grpc.ForceServerCodecV2(wire.NewCodec()))...,
	)
	syncv1.RegisterSyncServer(grpcServer, o)
	served := make(chan error, 1)
	go func() { served <- grpcServer.Serve(listener) }()
	t.Cleanup(func() {
		grpcServer.Stop()
		require.NoError(t, <-served)
	})
}

// roots are trusted CAs that change.
type roots struct{ texts chan []byte }

func (r *roots) String() string { return "the test" }

func (r *roots) Watch(ctx context.Context, report func(certs.Blocks, error)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case text := <-r.texts:
			report(certs.Blocks{CAs: text}, nil)
		}
	}
}

// trust makes these the trusted CAs.
func (r *roots) trust(cas ...*pki.CA) {
	var text []byte
	for _, a := range cas {
		text = append(text, a.PEM().Certificate...)
	}
	r.texts <- text
}

// fixed are trusted CAs that do not change.
func fixed(ca *pki.CA) certs.Origin {
	return certs.Fixed("roots", certs.Blocks{CAs: ca.PEM().Certificate})
}

// source returns the material of one side, whose pair may be none.
func source(t *testing.T, trusted certs.Origin, pair pki.Pair) *certs.Source {
	t.Helper()
	options := certs.Options{Name: "test", Roots: trusted, Logger: slog.New(slog.DiscardHandler)}
	if pair.Certificate != nil {
		options.Pair = certs.Fixed("pair", certs.Blocks{Certificate: pair.Certificate, Key: pair.Key})
	}
	s, err := certs.New(options)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	require.NoError(t, s.Wait(withTimeout(t)))
	return s
}

// reach waits until the sources show what an agent has seen.
func (o *fixture) reach(ctx context.Context, revision uint64) error {
	o.awaited.Store(revision)
	if o.behind == nil {
		return nil
	}
	select {
	case <-o.behind:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *fixture) ready(ctx context.Context) error {
	select {
	case <-o.synced:
		return nil
	case <-ctx.Done():
		return errors.New("the first list is under way")
	}
}

func (o *fixture) knows(_ context.Context, agent string) (bool, error) {
	why, unknown := o.unknown.Load(agent)
	err, _ := why.(error)
	return !unknown, err
}

// register lets agents register that are in o.registers, and those that the hub knows anyway.
func (o *fixture) register(ctx context.Context, agent string, theirs wire.Hello) error {
	why, registers := o.registers.Load(agent)
	err, _ := why.(error)
	if takes, slow := why.(time.Duration); slow {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if registers && err == nil {
		o.unknown.Delete(agent)
		o.registered <- agent + " " + theirs.ClusterLabels["team"]
	}
	return err
}

func (o *fixture) memorySource(agent string) *memorySource {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sources[agent] == nil {
		o.sources[agent] = &memorySource{objects: make(map[converge.Key]converge.Object)}
	}
	return o.sources[agent]
}

// change changes one of an agent's objects.
func (o *fixture) change(agent string, key converge.Key, payload string) {
	o.memorySource(agent).set(key, payload)
	o.Changed(agent, facet, key)
}

// metric reads a metric that has no labels.
func (o *fixture) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := o.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.Fail(t, "there is no metric "+name)
	return 0
}

// hello is what principal and agents say here.
func hello() wire.Hello {
	h := wire.NewHello()
	h.Build, h.Mode, h.Mapping = "v1.2.3", "managed", "namespace"
	h.Kubernetes, h.ArgoCD = "v1.34.1", "v3.1.0"
	return h
}

// issue returns a certificate for an agent.
func (o *fixture) issue(t *testing.T, name string) pki.Pair {
	t.Helper()
	pair, err := o.ca.IssueClient(pki.ClientOptions{CommonName: name})
	require.NoError(t, err)
	return pair
}

// agent is an agent's end of a stream.
type agent struct {
	*wire.Stream
	hangUp context.CancelFunc // ends the gRPC stream, without a word
}

// connect opens a stream, over a connection of its own, as the agent that a certificate names.
func (o *fixture) connect(t *testing.T, trusted *pki.CA, pair pki.Pair) agent {
	t.Helper()
	return stream(t, o.dial(t, trusted, pair))
}

// dial makes a connection.
func (o *fixture) dial(t *testing.T, trusted *pki.CA, pair pki.Pair, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient(o.address, append(options,
		grpc.WithTransportCredentials(certs.ClientCredentials(certs.ClientOptions{Source: source(t, fixed(trusted), pair)})),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec()), grpc.WaitForReady(false)))...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() }) // a test may have closed it
	return connection
}

// stream opens a stream over a connection.
func stream(t *testing.T, connection *grpc.ClientConn) agent {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	grpcStream, err := syncv1.NewSyncClient(connection).Connect(ctx)
	if err != nil {
		return newAgent(t, failedStream{err}, end)
	}
	return newAgent(t, grpcStream, end)
}

// newAgent returns an agent's end of a gRPC stream.
func newAgent(t *testing.T, stream interface {
	Send(*pb.CloudEvent) error
	Recv() (*pb.CloudEvent, error)
}, end context.CancelFunc,
) agent {
	t.Helper()
	s := wire.NewStream(stream, end, "/agent", slog.New(slog.DiscardHandler))
	t.Cleanup(func() { s.Close(io.EOF); end() })
	return agent{s, end}
}

// RecvHello waits for the principal's hello.
func (a agent) RecvHello() (wire.Hello, error) {
	go a.Run()
	return a.Stream.RecvHello(context.Background())
}

// connectAndGreet connects and says hello.
func (o *fixture) connectAndGreet(t *testing.T, name string, h wire.Hello) agent {
	t.Helper()
	a := o.connect(t, o.ca, o.issue(t, name))
	if err := a.SendHello(h); err != nil {
		t.Log(err) // the principal may be faster to refuse the agent, which says so when it is read
	}
	return a
}

// connectServed connects, and waits until the agent is served.
func (o *fixture) connectServed(t *testing.T, name string) agent {
	t.Helper()
	a := o.connectAndGreet(t, name, hello())
	h, err := a.RecvHello()
	require.NoError(t, err)
	require.Equal(t, name, h.Agent)
	return a
}

// reportEmpty sends an empty digest, so that the principal sends everything.
func (a agent) reportEmpty(t *testing.T) {
	t.Helper()
	require.NoError(t, a.Send(converge.Digest{Facet: facet, Resync: 1}))
}

// requirePut receives an object.
func (a agent) requirePut(t *testing.T, key converge.Key, payload string) {
	t.Helper()
	for {
		put, err := a.put()
		require.NoError(t, err)
		if put.Key == key && string(put.Payload) == payload {
			return
		}
	}
}

// put receives and acknowledges an object.
func (a agent) put() (converge.Put, error) {
	put, err := a.receivePut()
	if err == nil {
		err = unlessEnded(a.Send(converge.Ack{Facet: put.Facet, Key: put.Key, Seq: put.Seq, Result: converge.Result{Code: converge.Done}}))
	}
	return put, err
}

// receivePut receives an object. It answers requests for buckets as a replica that holds nothing.
func (a agent) receivePut() (converge.Put, error) {
	for {
		m, err := a.Recv()
		if err != nil {
			return converge.Put{}, err
		}
		switch m := m.(type) {
		case converge.Put:
			return m, nil
		case converge.BucketRequest:
			for _, b := range m.Buckets {
				err = errors.Join(err, unlessEnded(a.Send(converge.BucketEntries{Facet: m.Facet, Resync: m.Resync, Bucket: b})))
			}
			if err != nil {
				return converge.Put{}, err
			}
		}
	}
}

// unlessEnded returns an error of Send, unless the stream has ended: then Recv says why.
func unlessEnded(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

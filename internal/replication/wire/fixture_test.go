package wire_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is how long a test waits for what must happen.
const timeout = 2 * time.Minute

func withTimeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// service hands each call to a function, which ends the call by returning.
type service struct {
	syncv1.UnimplementedSyncServer
	connect func(syncv1.Sync_ConnectServer) error
}

func (s service) Connect(stream syncv1.Sync_ConnectServer) error { return s.connect(stream) }

// serve runs a gRPC server until the test is over, and returns a client that is connected to it over loopback.
func serve(t *testing.T, connect func(syncv1.Sync_ConnectServer) error) *grpc.ClientConn {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.NewCodec()))
	syncv1.RegisterSyncServer(server, service{connect: connect})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	client, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// call opens a stream from the client's side. end ends the gRPC stream.
func call(t *testing.T, client *grpc.ClientConn, codec encoding.CodecV2) (stream syncv1.Sync_ConnectClient, end context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := syncv1.NewSyncClient(client).Connect(ctx, grpc.ForceCodecV2(codec))
	require.NoError(t, err)
	return stream, cancel
}

// pair returns the two ends of a stream over loopback, which are closed when the test is over.
func pair(t *testing.T) (agent, principal *wire.Stream) {
	t.Helper()
	agent, principal, _ = pairWith(t)
	return agent, principal
}

// pairWith returns also what ends the gRPC stream.
func pairWith(t *testing.T) (agent, principal *wire.Stream, end func()) {
	t.Helper()
	opened := make(chan *wire.Stream)
	over := make(chan struct{})
	client := serve(t, func(s syncv1.Sync_ConnectServer) error {
		opened <- wire.NewStream(s, func() {}, "/principal", quiet())
		<-over
		return nil
	})
	grpcStream, cancel := call(t, client, wire.NewCodec())
	agent = wire.NewStream(grpcStream, cancel, "/agent", quiet())
	principal = <-opened
	end = sync.OnceFunc(func() { cancel(); close(over) })
	t.Cleanup(end)
	return agent, principal, end
}

// cable is a gRPC stream without a network, for tests whose clock is a fake one. What is sent goes to out, what comes in
// is received.
type cable struct {
	in, out chan *pb.CloudEvent
	ended   chan struct{} // closed when the stream is over
	once    sync.Once
}

func newCable() *cable {
	return &cable{in: make(chan *pb.CloudEvent), out: make(chan *pb.CloudEvent, 1000), ended: make(chan struct{})}
}

// open returns a stream over the cable.
func (c *cable) open(source string, logger *slog.Logger) *wire.Stream {
	return wire.NewStream(c, c.end, source, logger)
}

func (c *cable) end() { c.once.Do(func() { close(c.ended) }) }

// drain receives from a stream until it ends, which the function that it returns waits for.
func drain(s *wire.Stream) (wait func()) {
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for {
			if _, err := s.Recv(); err != nil {
				return
			}
		}
	})
	return receiver.Wait
}

func (c *cable) Send(e *pb.CloudEvent) error {
	select {
	case <-c.ended:
		return io.EOF
	case c.out <- e:
		return nil
	}
}

func (c *cable) Recv() (*pb.CloudEvent, error) {
	select {
	case <-c.ended:
		return nil, errLost
	case e := <-c.in:
		return e, nil
	}
}

// recvHello has a stream receive a hello, and end when the test is over.
func recvHello(t *testing.T, s *wire.Stream, end func()) (wire.Hello, error) {
	t.Helper()
	var run sync.WaitGroup
	run.Go(s.Run)
	t.Cleanup(func() {
		s.Close(errLost)
		end()
		run.Wait()
	})
	return s.RecvHello(withTimeout(t))
}

// put is a message for tests that need one.
func put(n uint64) converge.Put {
	return converge.Put{Facet: "application", Key: "guestbook", Seq: n, Object: object(`{"spec":{}}`)}
}

func object(payload string) converge.Object {
	return converge.Object{
		State: converge.State{UID: "e3b0c442", Version: converge.VersionOf([]byte(payload))}, Payload: []byte(payload),
	}
}

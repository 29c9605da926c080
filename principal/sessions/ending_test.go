package sessions_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/identity/certs"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/traffic/connlimit"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/principal/sessions"
)

// disconnected waits until agents have been said to have disconnected so often, and returns the log.
func (o *fixture) disconnected(t *testing.T, times int) string {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Count(o.log.String(), "An agent disconnected") >= times },
		timeout, time.Millisecond)
	text := o.log.String()
	require.Equal(t, times, strings.Count(text, "An agent disconnected"))
	return text
}

// An agent that goes and a connection that is lost look the same to gRPC. To operators they must not.
func TestReasonOfDisconnectIsLogged(t *testing.T) {
	for want, end := range map[string]func(t *testing.T, o *fixture){
		// As our agent does it when it is stopped.
		`reason="the agent closed the stream, and should say why in its own log"`: func(t *testing.T, o *fixture) {
			connection := o.dial(t, o.ca, o.issue(t, "a"))
			a := stream(t, connection)
			a.meet(t)
			a.hangUp()
			require.NoError(t, connection.Close())
		},
		`reason="the agent closed the stream"`: func(t *testing.T, o *fixture) {
			connection := o.dial(t, o.ca, o.issue(t, "a"))
			grpcStream, err := syncv1.NewSyncClient(connection).Connect(t.Context())
			require.NoError(t, err)
			a := newAgent(t, grpcStream, func() {})
			a.meet(t)
			require.NoError(t, grpcStream.CloseSend())
			require.Error(t, a.endReason(t))
		},
		"reason=\"the connection was lost: ": func(t *testing.T, o *fixture) {
			cable := &cable{}
			a := stream(t, o.dial(t, o.ca, o.issue(t, "a"), grpc.WithContextDialer(cable.dial)))
			a.meet(t)
			cable.cut(t)
		},
		"received message larger than max": func(t *testing.T, o *fixture) {
			a := o.connectServed(t, "a")
			require.NoError(t, a.Send(converge.Put{Facet: facet, Seq: 1, Object: converge.Object{Payload: make([]byte, 5<<20)}}))
		},
		`reason="another agent connected by the same name`: func(t *testing.T, o *fixture) {
			a := o.connectServed(t, "a")
			require.Eventually(t, func() bool { return strings.Contains(o.log.String(), "An agent connected") },
				timeout, time.Millisecond, "else the other may come to be the older one")
			o.connectServed(t, "a")
			require.Error(t, a.endReason(t))
		},
	} {
		t.Run(want, func(t *testing.T) {
			o := open(t)
			end(t, o)
			require.Contains(t, o.disconnected(t, 1), want)
		})
	}
}

// meet says hello and is answered.
func (a agent) meet(t *testing.T) {
	t.Helper()
	require.NoError(t, a.SendHello(hello()))
	_, err := a.RecvHello()
	require.NoError(t, err)
}

// cable is how an agent connects. It can be cut.
type cable struct {
	mu   sync.Mutex
	conn net.Conn
}

func (c *cable) dial(ctx context.Context, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, err
}

// cut resets the connection, as the kernel does for a process that was killed.
func (c *cable) cut(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.NoError(t, c.conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, c.conn.Close())
}

// A server that stops waits for handshakes: a port scanner's is never finished.
func TestShutdownEndsHandshakes(t *testing.T) {
	o := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	secure := certs.ServerCredentials(certs.ServerOptions{Source: o.material})
	server := grpc.NewServer(append(sessions.ServerOptions(ctx, secure), grpc.ConnectionTimeout(time.Hour))...)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	cancel()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	server.GracefulStop()
	require.NoError(t, <-served)
}

// One that goes without a hello was never here. It can open thousands of streams in a second, and fills no log.
func TestStreamsWithoutHelloAreNotLogged(t *testing.T) {
	withFakeClock(t, func(t *testing.T, o *fixture) {
		for range 1000 {
			a, ended := o.callConnect(t, "a", time.Hour)
			a.hangUp()
			require.Error(t, <-ended)
		}
		require.Empty(t, o.log.String())
	})
}

func TestRefusalsAreLoggedAtALimitedRate(t *testing.T) {
	agents := 0 // what one of them repeats is logged once
	next := func() string { agents++; return fmt.Sprintf("agent-%d", agents) }
	for name, begin := range map[string]func(t *testing.T, o *fixture) <-chan error{
		"no name for an agent": func(t *testing.T, o *fixture) <-chan error {
			_, ended := o.callConnect(t, reserved, time.Hour)
			return ended
		},
		"no hello": func(t *testing.T, o *fixture) <-chan error {
			a, ended := o.callConnect(t, next(), time.Hour)
			require.NoError(t, a.Send(converge.Digest{Facet: facet, Resync: 1}))
			return ended
		},
		"another mode": func(t *testing.T, o *fixture) <-chan error {
			a, ended := o.callConnect(t, next(), time.Hour)
			h := hello()
			h.Mode = "dependent"
			require.NoError(t, a.SendHello(h))
			return ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			withFakeClock(t, func(t *testing.T, o *fixture) {
				for range 200 {
					require.Error(t, <-begin(t, o))
				}
				require.Equal(t, 20, strings.Count(o.log.String(), "Refused connection"))
				<-time.After(5 * time.Second)
				require.Error(t, <-begin(t, o))
				require.Equal(t, 21, strings.Count(o.log.String(), "\n"))
			})
		})
	}
}

// What came instead of a hello is reported to the agent, and to the hub's operators.
func TestHelloThatCannotBeUnderstood(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		o := newFixture(t)
		o.run(t)
		synctest.Wait()
		ctx, end := sessions.Cancellable(o.authenticated(t, "a", time.Hour))
		defer end()
		c := &call{ctx: ctx, in: make(chan *pb.CloudEvent), out: make(chan *pb.CloudEvent)}
		ended := make(chan error, 1)
		go func() { ended <- o.Connect(c); end() }()
		c.in <- &pb.CloudEvent{Type: "io.argoproj-labs.argocd-agent.hello", Data: &pb.CloudEvent_BinaryData{BinaryData: []byte("{")}}
		err := <-ended
		require.Equal(t, codes.DeadlineExceeded, status.Code(err))
		require.ErrorContains(t, err, "1 events came that cannot be decoded")
		require.Contains(t, o.log.String(), "1 events came that cannot be decoded")
	})
}

// One agent's connections cost descriptors and memory for all, also without a stream.
func TestConnectionsOfOneCertificateAreBounded(t *testing.T) {
	o := newFixture(t)
	secure := certs.ServerCredentials(certs.ServerOptions{Source: o.material})
	server := grpc.NewServer(sessions.ServerOptions(t.Context(), secure)...)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	limit := connlimit.New(connlimit.Options{Total: 100, PerCertificate: 3, Logger: slog.New(slog.DiscardHandler)})
	served := make(chan error, 1)
	go func() { served <- server.Serve(limit.Listen(listener)) }()
	defer func() { server.Stop(); require.NoError(t, <-served) }()

	var connections []net.Conn
	defer func() { // before the server stops, which waits for those that have not spoken yet
		for _, conn := range connections {
			_ = conn.Close()
		}
	}()
	// connect reports whether a connection is served: gRPC's server speaks first.
	connect := func(own tls.Certificate) bool {
		roots := x509.NewCertPool()
		roots.AddCert(o.ca.Certificate())
		dialer := tls.Dialer{Config: &tls.Config{
			Certificates: []tls.Certificate{own}, RootCAs: roots, ServerName: "127.0.0.1", NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13,
		}}
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		connections = append(connections, conn)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(timeout)))
		_, err = conn.Read(make([]byte, 1))
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		return err == nil
	}
	berlin, err := o.issue(t, "berlin").TLS()
	require.NoError(t, err)
	paris, err := o.issue(t, "paris").TLS()
	require.NoError(t, err)
	for range 3 {
		require.True(t, connect(berlin))
	}
	for range 5 {
		require.False(t, connect(berlin))
	}
	require.True(t, connect(paris))
	for range 200 { // who begins a handshake and says no more keeps nobody out
		silent, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
		require.NoError(t, err)
		connections = append(connections, silent)
	}
	require.True(t, connect(paris))
}

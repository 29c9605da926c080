package wire_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	syncv1 "github.com/argocd-agent-mesh/argocd-agent-mesh/api/sync/v1"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/bubble"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

var errLost = errors.New("the connection was lost")

// messages are all that a session is made of, with what is easily lost on the way.
func messages() map[string]converge.Message {
	const facet, key = converge.Facet("application-status"), converge.Key("guestbook")
	all := make(map[converge.Bucket]converge.BucketDigest)
	var buckets []converge.Bucket
	for b := range 256 {
		all[converge.Bucket(b)] = math.MaxUint64 - converge.BucketDigest(b)
		buckets = append(buckets, converge.Bucket(b))
	}
	state := object("x").State
	return map[string]converge.Message{
		"put":                      put(1),
		"put with the highest seq": put(math.MaxUint64),
		"put that is no JSON": converge.Put{Facet: facet, Key: key, Seq: 1,
			Object: converge.Object{State: state, Payload: []byte{0, 0xff, 0xc0}}},
		"delete":                     converge.Delete{Facet: facet, Key: key, Seq: 2, UID: "e3b0c442"},
		"delete of a revision":       converge.Delete{Facet: facet, Key: key, Seq: 2, Revision: 1 << 63},
		"delete of any":              converge.Delete{Facet: facet, Key: key, Seq: 2},
		"done":                       converge.Ack{Facet: facet, Key: key, Seq: 3, Result: converge.Result{Code: converge.Done}},
		"done and absent":            converge.Ack{Facet: facet, Key: key, Seq: 3, Result: converge.Result{Code: converge.Done, Absent: true}},
		"retry":                      converge.Ack{Facet: facet, Key: key, Seq: 3, Result: converge.Result{Code: converge.Retry, Reason: "ü\n\"away\""}},
		"refused":                    converge.Ack{Facet: facet, Key: key, Seq: 3, Result: converge.Result{Code: converge.Refused, Reason: "422"}},
		"replica-changed":            converge.ReplicaChanged{Facet: facet, Key: key, State: state},
		"replica-changed to nothing": converge.ReplicaChanged{Facet: facet, Key: key},
		"digest":                     converge.Digest{Facet: facet, Resync: math.MaxUint64, Count: 1 << 40, Buckets: all},
		"digest of nothing":          converge.Digest{Facet: facet, Resync: 1, Buckets: map[converge.Bucket]converge.BucketDigest{}},
		"bucket-request":             converge.BucketRequest{Facet: facet, Resync: 7, Buckets: buckets},
		"bucket-request for a digest": converge.BucketRequest{Facet: facet,
			Buckets: []converge.Bucket{}},
		"bucket-entries": converge.BucketEntries{Facet: facet, Resync: 7, Bucket: 255, Entries: []converge.Entry{
			{Key: "a", State: state}, {Key: "b", State: object("y").State},
		}},
		"bucket-entries of nothing": converge.BucketEntries{Facet: facet, Resync: 7, Bucket: 0, Entries: []converge.Entry{}},
	}
}

func TestMessagesArriveAsTheyWereSent(t *testing.T) {
	agent, principal := pair(t)
	for name, m := range messages() {
		for way, ends := range map[string][2]*wire.Stream{"up": {agent, principal}, "down": {principal, agent}} {
			require.NoError(t, ends[0].Send(m))
			got, err := ends[1].Recv()
			require.NoError(t, err)
			require.Equal(t, m, got, "%s, %s", name, way)
		}
	}
}

// An object may be as big as etcd lets it be, and a bucket of a large hub bigger than most objects.
func TestLargeMessagesArrive(t *testing.T) {
	agent, principal := pair(t)
	large := put(1)
	large.Payload = make([]byte, 1536<<10)
	require.NoError(t, principal.Send(large))
	got, err := agent.Recv()
	require.NoError(t, err)
	require.Equal(t, large, got)

	entries := converge.BucketEntries{Facet: "application"}
	for i := range 10_000 {
		entries.Entries = append(entries.Entries, converge.Entry{Key: converge.Key(fmt.Sprintf("%0253d", i)), State: large.State})
	}
	require.NoError(t, agent.Send(entries))
	got, err = principal.Recv()
	require.NoError(t, err)
	require.Equal(t, entries, got)
}

func TestHellosArriveAsTheyWereSent(t *testing.T) {
	agent, principal, end := pairWith(t)
	hello := wire.Hello{
		Oldest: 1, Newest: 3, Build: "v1.2.3", Agent: "a", Mode: "managed", Mapping: "namespace", Heartbeat: 30_000,
		Kubernetes: "v1.34.1", ArgoCD: "v3.1.0",
		Seen: map[string]uint64{"application": 1<<64 - 1},
	}
	require.NoError(t, agent.SendHello(hello))
	got, err := recvHello(t, principal, end)
	require.NoError(t, err)
	require.Equal(t, hello, got)
}

func TestStreamWithoutHelloIsRefused(t *testing.T) {
	agent, principal, end := pairWith(t)
	require.NoError(t, agent.Send(put(1)))
	_, err := recvHello(t, principal, end)
	require.ErrorContains(t, err, "instead of a hello")
}

// A hello that cannot be understood is none: it is passed over, and waiting for one is bounded by the caller.
func TestUndecodableHelloIsIgnored(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := newCable()
		s := c.open("/principal", quiet())
		noJSON := &pb.CloudEvent{Type: "io.argoproj-labs.argocd-agent.hello", Data: &pb.CloudEvent_BinaryData{BinaryData: []byte("no JSON")}}
		time.AfterFunc(time.Second, c.end)
		go func() { c.in <- noJSON }()
		_, err := recvHello(t, s, c.end)
		require.ErrorIs(t, err, errLost)
	})
}

func TestSecondHelloIsIgnored(t *testing.T) {
	agent, principal := pair(t)
	require.NoError(t, agent.SendHello(wire.NewHello()))
	require.NoError(t, agent.Send(put(1)))
	got, err := principal.Recv()
	require.NoError(t, err)
	require.Equal(t, put(1), got)
}

// plain sends bytes as they are.
type plain struct{ encoding.CodecV2 }

func (p plain) Marshal(v any) (mem.BufferSlice, error) {
	if data, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(data)}, nil
	}
	return p.CodecV2.Marshal(v)
}

// What is not understood is passed over, and the stream goes on: to end it would make the peer send the same again.
func TestInvalidEventsAreSkipped(t *testing.T) {
	const prefix = "io.argoproj-labs.argocd-agent."
	text := func(s string) *pb.CloudEventAttributeValue {
		return &pb.CloudEventAttributeValue{Attr: &pb.CloudEventAttributeValue_CeString{CeString: s}}
	}
	binary := func(s string) *pb.CloudEvent_BinaryData { return &pb.CloudEvent_BinaryData{BinaryData: []byte(s)} }
	for name, what := range map[string]any{
		"bytes that are no protobuf":          []byte{0xff, 0xff, 0xff},
		"a message cut short":                 []byte{0x0a, 0x7f, 'x'},
		"nothing":                             []byte{},
		"an event without a type":             &pb.CloudEvent{Id: "1"},
		"a type of tomorrow":                  &pb.CloudEvent{Type: prefix + "tomorrow", Data: binary("{}")},
		"a put without anything":              &pb.CloudEvent{Type: prefix + "put"},
		"a put whose seq is no number":        &pb.CloudEvent{Type: prefix + "put", Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text("x")}},
		"an ack with another result":          &pb.CloudEvent{Type: prefix + "ack", Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text("1"), "result": text("perhaps")}},
		"a notice with half a version":        &pb.CloudEvent{Type: prefix + "replica-changed"},
		"a summary that is no JSON":           &pb.CloudEvent{Type: prefix + "digest", Data: binary("{")},
		"a summary with a bucket of 256":      &pb.CloudEvent{Type: prefix + "digest", Data: binary(`{"buckets":{"256":"0"}}`)},
		"a summary with a bad digest":         &pb.CloudEvent{Type: prefix + "digest", Data: binary(`{"buckets":{"1":"g"}}`)},
		"a bucket-request with text for data": &pb.CloudEvent{Type: prefix + "bucket-request", Data: &pb.CloudEvent_TextData{TextData: "{}"}},
		"bucket-entries with a bad version":   &pb.CloudEvent{Type: prefix + "bucket-entries", Data: binary(`{"entries":[{"key":"a","version":"12"}]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			received := make(chan error, 1)
			client := serve(t, func(s syncv1.Sync_ConnectServer) error {
				stream := wire.NewStream(s, func() {}, "/principal", quiet())
				m, err := stream.Recv()
				if err == nil && m.(converge.Delete).Key != "guestbook" {
					err = fmt.Errorf("received %v", m)
				}
				received <- err
				return nil
			})
			stream, _ := call(t, client, plain{wire.NewCodec()})
			require.NoError(t, stream.SendMsg(what))
			require.NoError(t, stream.Send(&pb.CloudEvent{Type: prefix + "delete", Attributes: map[string]*pb.CloudEventAttributeValue{
				"subject": text("guestbook"), "facet": text("application"), "seq": text("1"),
			}}))
			require.NoError(t, <-received)
		})
	}
}

// The reason for which a server ends a stream gets to the client, also to one that is about to send.
func TestReasonOfTheEndArrives(t *testing.T) {
	client := serve(t, func(syncv1.Sync_ConnectServer) error { return status.Error(codes.Aborted, "there is another one") })
	grpcStream, end := call(t, client, wire.NewCodec())
	s := wire.NewStream(grpcStream, end, "/agent", quiet())
	defer end()
	_, err := s.Recv()
	require.Equal(t, codes.Aborted, status.Code(err))
	require.ErrorContains(t, err, "there is another one")
	require.ErrorIs(t, s.Send(put(1)), io.EOF, "the reason is what Recv returns")
}

// What cannot be sent ends the stream, and says why. Of a stream that gRPC has ended, gRPC's reason can be had.
func TestMessageThatCannotBeSent(t *testing.T) {
	agent, principal, end := pairWith(t)
	require.ErrorContains(t, principal.Send(converge.Delete{Key: "no UTF-8: \xff", Seq: 1}), "UTF-8")
	_, err := recvHello(t, agent, end)
	require.ErrorContains(t, err, "UTF-8")
	require.ErrorContains(t, agent.Ended(), "UTF-8")
	end()
	_, err = recvHello(t, principal, end)
	require.Error(t, err)
	require.ErrorContains(t, principal.Ended(), "UTF-8")
}

func TestMessageThatIsTooLarge(t *testing.T) {
	agent, principal, end := pairWith(t)
	large := put(1)
	large.Payload = make([]byte, 5<<20)
	require.NoError(t, agent.Send(large))
	_, err := recvHello(t, principal, end)
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, err, principal.Ended())
}

// A stream that is closed says why, and only the first reason counts.
func TestClosedStreamSaysWhy(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		d.Close(errLost)
		d.Close(io.EOF)
		require.ErrorIs(t, <-d.ended, errLost)
		require.ErrorIs(t, d.Send(put(1)), errLost)
		require.Empty(t, d.c.out)
	})
}

func TestClosingAStreamEndsASendThatBlocks(t *testing.T) {
	delivering(t, func(t *testing.T, d delivery) {
		d.c.out = nil
		go func() {
			synctest.Wait()
			d.Close(errLost)
		}()
		require.ErrorIs(t, d.Send(put(1)), errLost)
		require.ErrorIs(t, <-d.ended, errLost)
	})
}

// One that is closed before anybody says to whom to deliver says so then.
func TestStreamThatWasClosedBeforeItDelivers(t *testing.T) {
	c := newCable()
	s := c.open("/agent", quiet())
	s.Close(errLost)
	ended := make(chan error, 1)
	s.Deliver(nil, func(err error) { ended <- err })
	require.ErrorIs(t, <-ended, errLost)
}

// A peer that is not read stops sending, and what it sent is not lost. Other streams of the connection go on.
func TestSlowReaderStopsItsOwnSenderOnly(t *testing.T) {
	const messages = 200 // far more than the windows of both streams take
	opened, over := make(chan *wire.Stream, 2), make(chan struct{})
	client := serve(t, func(s syncv1.Sync_ConnectServer) error {
		opened <- wire.NewStream(s, func() {}, "/principal", quiet())
		<-over
		return nil
	})
	defer close(over)
	var agents, principals [2]*wire.Stream
	for i := range agents {
		grpcStream, end := call(t, client, wire.NewCodec())
		agents[i], principals[i] = wire.NewStream(grpcStream, end, "/agent", quiet()), <-opened
		defer end()
	}
	var sent atomic.Uint64
	failed := make(chan error, 1)
	go func() {
		large := put(0)
		large.Payload = make([]byte, 256<<10)
		for large.Seq = 1; large.Seq <= messages; large.Seq++ {
			if err := principals[0].Send(large); err != nil {
				failed <- err
				return
			}
			sent.Add(1)
		}
		failed <- nil
	}()
	require.Eventually(t, func() bool { return sent.Load() > 0 }, timeout, time.Millisecond)
	require.NoError(t, principals[1].Send(put(1)))
	got, err := agents[1].Recv()
	require.NoError(t, err)
	require.Equal(t, put(1), got)
	require.Less(t, sent.Load(), uint64(messages), "nothing stops the sender")
	for n := uint64(1); n <= messages; n++ {
		got, err := agents[0].Recv()
		require.NoError(t, err)
		require.Equal(t, n, got.(converge.Put).Seq)
	}
	require.NoError(t, <-failed)
}

package wire_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"
	"github.com/stretchr/testify/require"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/wire"
)

// long is a text of so many bytes.
func long(bytes int) string { return strings.Repeat("a", bytes) }

// What a peer may have us keep is bounded: an event with a text that is too long is none, and one that is as long as may be
// arrives.
func TestTextsAreBounded(t *testing.T) {
	state := object("x").State
	named := func(uid int) converge.State { return converge.State{UID: long(uid), Version: state.Version} }
	for name, c := range map[string]struct {
		limit   int
		message func(length int) converge.Message
	}{
		"facet of a put": {64, func(n int) converge.Message {
			return converge.Put{Facet: converge.Facet(long(n)), Seq: 1, Object: converge.Object{State: state}}
		}},
		"facet of a digest": {64, func(n int) converge.Message {
			return converge.Digest{Facet: converge.Facet(long(n)), Buckets: map[converge.Bucket]converge.BucketDigest{}}
		}},
		"key of a put": {512, func(n int) converge.Message {
			return converge.Put{Key: converge.Key(long(n)), Seq: 1, Object: converge.Object{State: state}}
		}},
		"key of a delete": {512, func(n int) converge.Message { return converge.Delete{Key: converge.Key(long(n)), Seq: 1} }},
		"key of an ack": {512, func(n int) converge.Message {
			return converge.Ack{Key: converge.Key(long(n)), Seq: 1, Result: converge.Result{Code: converge.Done}}
		}},
		"key of a replica-changed": {512, func(n int) converge.Message { return converge.ReplicaChanged{Key: converge.Key(long(n)), State: state} }},
		"key in bucket-entries": {512, func(n int) converge.Message {
			return converge.BucketEntries{Entries: []converge.Entry{{Key: converge.Key(long(n)), State: state}}}
		}},
		"uid of a put": {128, func(n int) converge.Message {
			return converge.Put{Seq: 1, Object: converge.Object{State: named(n)}}
		}},
		"uid of a delete":          {128, func(n int) converge.Message { return converge.Delete{Seq: 1, UID: long(n)} }},
		"uid of a replica-changed": {128, func(n int) converge.Message { return converge.ReplicaChanged{State: named(n)} }},
		"uid in bucket-entries": {128, func(n int) converge.Message {
			return converge.BucketEntries{Entries: []converge.Entry{{State: named(n)}}}
		}},
		"buckets of a bucket-request": {256, func(n int) converge.Message {
			return converge.BucketRequest{Buckets: make([]converge.Bucket, n)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			longest := c.message(c.limit)
			got, ok := received(t, encoded(t, longest))
			require.True(t, ok)
			require.Equal(t, longest, got)
			for _, length := range []int{c.limit + 1, 1 << 20} {
				_, ok = received(t, encoded(t, c.message(length)))
				require.False(t, ok, "%d", length)
			}
		})
	}
}

// seenOf is a hello that names so many facets.
func seenOf(facets int) []byte {
	seen := make(map[string]uint64)
	for i := range facets {
		seen[strconv.Itoa(i)] = 1
	}
	text, _ := json.Marshal(wire.Hello{Seen: seen}) // it never fails
	return text
}

// These have one form only when we write them; a peer may write anything.
func TestSmallTextsAreBounded(t *testing.T) {
	text := func(s string) *pb.CloudEventAttributeValue {
		return &pb.CloudEventAttributeValue{Attr: &pb.CloudEventAttributeValue_CeString{CeString: s}}
	}
	const prefix = "io.argoproj-labs.argocd-agent."
	zeros := strings.Repeat("0", 64)
	for name, event := range map[string]*pb.CloudEvent{
		"seq":             {Type: prefix + "delete", Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text(zeros + "1")}},
		"revision":        {Type: prefix + "delete", Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text("1"), "revision": text(zeros + "1")}},
		"no revision":     {Type: prefix + "delete", Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text("1"), "revision": text("-1")}},
		"seen of a hello": {Type: prefix + "hello", Data: &pb.CloudEvent_BinaryData{BinaryData: seenOf(33)}},
		"result":          {Type: prefix + "ack", Attributes: map[string]*pb.CloudEventAttributeValue{"seq": text("1"), "result": text(long(3 << 20))}},
		"digest":          {Type: prefix + "digest", Data: &pb.CloudEvent_BinaryData{BinaryData: []byte(`{"buckets":{"1":"` + zeros + `1"}}`)}},
		"facet of a heartbeat": {Type: prefix + "heartbeat",
			Attributes: map[string]*pb.CloudEventAttributeValue{"facet": text(long(3 << 20))}},
	} {
		_, ok := received(t, event)
		require.False(t, ok, name)
	}
}

// A reason is for users: what it is about gets through, however long it is.
func TestLongReasonIsCut(t *testing.T) {
	for name, reason := range map[string]string{
		"plain":                     long(1 << 20),
		"a character at the border": long(4095) + strings.Repeat("ü", 10),
		"characters of four bytes":  "a" + strings.Repeat("😀", 2000),
		"no UTF-8":                  "a\xff" + strings.Repeat("\x80", 5000) + "b",
		"no UTF-8, short":           "a\xffb",
	} {
		t.Run(name, func(t *testing.T) {
			ack := converge.Ack{Facet: "application", Key: "guestbook", Seq: 1, Result: converge.Result{Code: converge.Retry, Reason: reason}}
			m, ok := received(t, encoded(t, ack))
			require.True(t, ok)
			got := m.(converge.Ack)
			require.LessOrEqual(t, len(got.Reason), 4<<10)
			require.True(t, utf8.ValidString(got.Reason))
			require.True(t, strings.HasPrefix(got.Reason, "a"))
			if utf8.ValidString(reason) {
				require.Greater(t, len(got.Reason), 4<<10-utf8.UTFMax)
				require.True(t, strings.HasPrefix(reason, got.Reason))
			}
			got.Reason = reason
			require.Equal(t, ack, got)
		})
	}
	// One that we would not have cut.
	e := encoded(t, converge.Ack{Seq: 1, Result: converge.Result{Code: converge.Refused}})
	e.Attributes["reason"] = &pb.CloudEventAttributeValue{Attr: &pb.CloudEventAttributeValue_CeString{CeString: long(3 << 20)}}
	m, ok := received(t, e)
	require.True(t, ok)
	require.Len(t, m.(converge.Ack).Reason, 4<<10)
}

// Such an event would take hundreds of megabytes once it is decoded.
func TestEventWithTooManyValuesIsSkipped(t *testing.T) {
	for _, name := range []string{"hello", "digest", "bucket-request", "bucket-entries"} {
		e := encoded(t, converge.BucketEntries{Facet: "application"})
		e.Type = "io.argoproj-labs.argocd-agent." + name
		e.Data = &pb.CloudEvent_BinaryData{BinaryData: []byte(`{"entries":[` + strings.Repeat("{},", 400_000) + `{}]}`)}
		_, ok := received(t, e)
		require.False(t, ok, name)
	}
}

func TestHeartbeatIntervalIsBounded(t *testing.T) {
	for _, milliseconds := range []int64{math.MaxInt64, math.MaxInt64 / 1000, 1 << 40} {
		require.Equal(t, 24*time.Hour, wire.Hello{Heartbeat: milliseconds}.Every())
	}
	require.Equal(t, time.Minute, wire.Hello{Heartbeat: 60_000}.Every())
}

// greeting returns what a stream receives of a hello, or the error where none was.
func greeting(t *testing.T, h wire.Hello) (wire.Hello, error) {
	t.Helper()
	sender, receiver := newCable(), newCable()
	a, b := sender.open("/agent", quiet()), receiver.open("/principal", quiet())
	defer sender.end()
	require.NoError(t, a.SendHello(h))
	go func() {
		for _, e := range []*pb.CloudEvent{<-sender.out, anEvent()} { // the latter is received where no hello was
			select {
			case receiver.in <- e:
			case <-receiver.ended:
			}
		}
	}()
	return recvHello(t, b, receiver.end)
}

func TestHelloIsBounded(t *testing.T) {
	h := wire.NewHello()
	h.Kubernetes, h.ArgoCD = long(1<<19), long(65)
	h.Agent, h.Mode, h.Mapping, h.Build, h.Selector, h.Hub = long(64), long(64), long(64), long(1<<20), long(4096), long(128)
	got, err := greeting(t, h)
	require.NoError(t, err)
	h.Build, h.Kubernetes, h.ArgoCD = long(64), long(64), long(64)
	require.Equal(t, h, got)
	for name, change := range map[string]func(*wire.Hello){
		"agent":    func(h *wire.Hello) { h.Agent += "a" },
		"mode":     func(h *wire.Hello) { h.Mode += "a" },
		"mapping":  func(h *wire.Hello) { h.Mapping += "a" },
		"selector": func(h *wire.Hello) { h.Selector += "a" },
		"hub":      func(h *wire.Hello) { h.Hub += "a" },
	} {
		other := h
		change(&other)
		_, err := greeting(t, other)
		require.ErrorContains(t, err, fmt.Sprintf("%T", converge.BucketRequest{}), name)
	}
}

func TestWhatAnAgentSaysOfItsClusterIsBounded(t *testing.T) {
	labels := func(n, key, value int) map[string]string {
		m := make(map[string]string)
		for i := range n {
			m[fmt.Sprintf("%0*d", key, i)] = long(value)
		}
		return m
	}
	for name, c := range map[string]struct {
		labels map[string]string
		ok     bool
	}{
		"as many and as long as there may be": {labels(32, 317, 1024), true},
		"one too many":                        {labels(33, 10, 1), false},
		"a key that is too long":              {labels(1, 318, 1), false},
		"a value that is too long":            {labels(1, 10, 1025), false},
		"a million":                           {labels(1_000_000, 10, 0), false},
	} {
		for _, h := range []wire.Hello{{ClusterLabels: c.labels}, {ClusterAnnotations: c.labels}} {
			_, err := greeting(t, h)
			require.Equal(t, c.ok, err == nil, "%s: %v", name, err)
		}
	}
}

// Package wire carries a session of package converge over the gRPC stream between an agent and its principal. Each
// message is a CloudEvent; api/PROTOCOL.md is the text that this package implements.
package wire

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

// Types of events.
const (
	typePrefix         = "io.argoproj-labs.argocd-agent."
	typeHello          = typePrefix + "hello"
	typeHeartbeat      = typePrefix + "heartbeat"
	typePut            = typePrefix + "put"
	typeDelete         = typePrefix + "delete"
	typeAck            = typePrefix + "ack"
	typeReplicaChanged = typePrefix + "replica-changed"
	typeDigest         = typePrefix + "digest"
	typeBucketRequest  = typePrefix + "bucket-request"
	typeBucketEntries  = typePrefix + "bucket-entries"
)

// Attributes of events, besides those that the CloudEvents specification requires.
const (
	attrFacet    = "facet"
	attrKey      = "subject"
	attrSeq      = "seq"
	attrRevision = "revision"
	attrUID      = "uid"
	attrVersion  = "version"
	attrResult   = "result"
	attrAbsent   = "absent"
	attrReason   = "reason"
	attrType     = "datacontenttype"
)

// errUnknown means that an event is of a type that a newer peer may know.
var errUnknown = errors.New("unknown event type")

// digest, bucketRequest and bucketEntries are the data of a resync's events.
type digest struct {
	Resync  uint64           `json:"resync"`
	Count   int              `json:"count"`
	Buckets map[uint8]string `json:"buckets"` // digests in hexadecimal: JSON numbers lose digits
}

type bucketRequest struct {
	Resync  uint64   `json:"resync,omitempty"`
	Buckets []uint16 `json:"buckets,omitempty"` // not bytes, which JSON would show as text
}

type bucketEntries struct {
	Resync  uint64  `json:"resync"`
	Bucket  uint8   `json:"bucket"`
	Entries []entry `json:"entries,omitempty"`
}

type entry struct {
	Key     string `json:"key"`
	UID     string `json:"uid"`
	Version string `json:"version"`
}

// encode returns the event for a message: a converge.Message or a Hello.
func encode(message any) (*pb.CloudEvent, error) {
	e := &pb.CloudEvent{SpecVersion: "1.0", Attributes: map[string]*pb.CloudEventAttributeValue{}}
	var err error
	switch m := message.(type) {
	case Hello:
		e.Type = typeHello
		err = setJSON(e, m)
	case converge.Heartbeat:
		e.Type = typeHeartbeat
	case converge.Put:
		e.Type = typePut
		setKey(e, m.Facet, m.Key, m.Seq)
		setState(e, m.State)
		setRevision(e, m.Revision)
		setBytes(e, m.Payload)
	case converge.Delete:
		e.Type = typeDelete
		setKey(e, m.Facet, m.Key, m.Seq)
		setRevision(e, m.Revision)
		setText(e, attrUID, m.UID)
	case converge.Ack:
		e.Type = typeAck
		setKey(e, m.Facet, m.Key, m.Seq)
		setText(e, attrResult, m.Code.String())
		setText(e, attrReason, cut(m.Reason, maxReason))
		if m.Absent {
			e.Attributes[attrAbsent] = &pb.CloudEventAttributeValue{
				Attr: &pb.CloudEventAttributeValue_CeBoolean{CeBoolean: true},
			}
		}
	case converge.ReplicaChanged:
		e.Type = typeReplicaChanged
		setKey(e, m.Facet, m.Key, 0)
		setState(e, m.State)
	default:
		err = encodeResync(e, message)
	}
	return e, err
}

func encodeResync(e *pb.CloudEvent, message any) error {
	switch m := message.(type) {
	case converge.Digest:
		e.Type = typeDigest
		setText(e, attrFacet, string(m.Facet))
		buckets := make(map[uint8]string, len(m.Buckets))
		for b, d := range m.Buckets {
			buckets[uint8(b)] = strconv.FormatUint(uint64(d), 16)
		}
		return setJSON(e, digest{Resync: m.Resync, Count: m.Count, Buckets: buckets})
	case converge.BucketRequest:
		e.Type = typeBucketRequest
		setText(e, attrFacet, string(m.Facet))
		buckets := make([]uint16, 0, len(m.Buckets))
		for _, b := range m.Buckets {
			buckets = append(buckets, uint16(b))
		}
		return setJSON(e, bucketRequest{Resync: m.Resync, Buckets: buckets})
	case converge.BucketEntries:
		e.Type = typeBucketEntries
		setText(e, attrFacet, string(m.Facet))
		entries := make([]entry, 0, len(m.Entries))
		for _, n := range m.Entries {
			entries = append(entries, entry{Key: string(n.Key), UID: n.UID, Version: n.Version.String()})
		}
		return setJSON(e, bucketEntries{Resync: m.Resync, Bucket: uint8(m.Bucket), Entries: entries})
	default:
		return fmt.Errorf("encode %T: %w", message, errUnknown)
	}
}

// decode returns the message of an event.
func decode(e *pb.CloudEvent) (any, error) {
	facet, key, err := keyOf(e)
	if err != nil {
		return nil, err
	}
	switch e.GetType() {
	case typeHello:
		return decodeHello(e)
	case typeHeartbeat:
		return converge.Heartbeat{}, nil
	case typePut:
		seq, state, err := seqAndState(e)
		if err != nil {
			return nil, err
		}
		revision, err := revisionOf(e)
		return converge.Put{Facet: facet, Key: key, Seq: seq, Revision: revision,
			Object: converge.Object{State: state, Payload: e.GetBinaryData()}}, err
	case typeDelete:
		seq, err := seqOf(e)
		if err != nil {
			return nil, err
		}
		revision, err := revisionOf(e)
		if err != nil {
			return nil, err
		}
		uid, err := text(e, attrUID, maxUID)
		return converge.Delete{Facet: facet, Key: key, Seq: seq, UID: uid, Revision: revision}, err
	case typeAck:
		seq, err := seqOf(e)
		if err != nil {
			return nil, err
		}
		result, err := resultOf(e)
		return converge.Ack{Facet: facet, Key: key, Seq: seq, Result: result}, err
	case typeReplicaChanged:
		state, err := stateOf(e)
		return converge.ReplicaChanged{Facet: facet, Key: key, State: state}, err
	case typeDigest:
		return decodeDigest(e, facet)
	case typeBucketRequest:
		return decodeBucketRequest(e, facet)
	case typeBucketEntries:
		return decodeBucketEntries(e, facet)
	default:
		return nil, fmt.Errorf("%w %q", errUnknown, cut(e.GetType(), maxShown))
	}
}

func decodeHello(e *pb.CloudEvent) (any, error) {
	var h Hello
	if err := unmarshal(e, &h); err != nil {
		return nil, err
	}
	for _, field := range []struct {
		name, text string
		limit      int
	}{
		{"agent", h.Agent, maxSmall}, {"mode", h.Mode, maxSmall}, {"mapping", h.Mapping, maxSmall},
		{"selector", h.Selector, maxSelector}, {"hub", h.Hub, maxUID},
	} {
		if len(field.text) > field.limit {
			return nil, errTooLong(e, field.name, len(field.text), field.limit)
		}
	}
	for _, m := range []map[string]string{h.ClusterLabels, h.ClusterAnnotations} {
		if err := checkClusterKeys(e, m); err != nil {
			return nil, err
		}
	}
	for _, shown := range []*string{&h.Build, &h.Kubernetes, &h.ArgoCD} {
		*shown = cut(*shown, maxSmall) // whoever builds may call it anything
	}
	if len(h.Seen) > maxSeen {
		return nil, fmt.Errorf("%s: seen: want at most %d facets, not %d", e.GetType(), maxSeen, len(h.Seen))
	}
	return h, nil
}

// checkClusterKeys refuses more, or longer, labels or annotations of a cluster than there may be.
func checkClusterKeys(e *pb.CloudEvent, m map[string]string) error {
	if len(m) > maxClusterKeys {
		return fmt.Errorf("%s: want at most %d labels, and as many annotations, of the cluster, not %d", e.GetType(), maxClusterKeys, len(m))
	}
	for key, value := range m {
		if len(key) > maxClusterKey {
			return errTooLong(e, "key of the cluster's labels or annotations", len(key), maxClusterKey)
		}
		if len(value) > maxClusterValue {
			return errTooLong(e, "value of the cluster's labels or annotations", len(value), maxClusterValue)
		}
	}
	return nil
}

func decodeDigest(e *pb.CloudEvent, facet converge.Facet) (any, error) {
	var s digest
	if err := unmarshal(e, &s); err != nil {
		return nil, err
	}
	buckets := make(map[converge.Bucket]converge.BucketDigest, len(s.Buckets))
	for b, text := range s.Buckets {
		if len(text) > maxSmall {
			return nil, errTooLong(e, "digest", len(text), maxSmall)
		}
		d, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: digest: %w", e.GetType(), err)
		}
		buckets[converge.Bucket(b)] = converge.BucketDigest(d)
	}
	return converge.Digest{Facet: facet, Resync: s.Resync, Count: s.Count, Buckets: buckets}, nil
}

func decodeBucketRequest(e *pb.CloudEvent, facet converge.Facet) (any, error) {
	var q bucketRequest
	if err := unmarshal(e, &q); err != nil {
		return nil, err
	}
	if len(q.Buckets) > maxBuckets {
		return nil, fmt.Errorf("%s: want at most %d buckets, not %d", e.GetType(), maxBuckets, len(q.Buckets))
	}
	buckets := make([]converge.Bucket, 0, len(q.Buckets))
	for _, b := range q.Buckets {
		buckets = append(buckets, converge.Bucket(b)) //nolint:gosec // what is too big names another bucket, harmlessly
	}
	return converge.BucketRequest{Facet: facet, Resync: q.Resync, Buckets: buckets}, nil
}

func decodeBucketEntries(e *pb.CloudEvent, facet converge.Facet) (any, error) {
	var h bucketEntries
	if err := unmarshal(e, &h); err != nil {
		return nil, err
	}
	entries := make([]converge.Entry, 0, len(h.Entries))
	for _, n := range h.Entries {
		switch {
		case len(n.Key) > maxKey:
			return nil, errTooLong(e, "key", len(n.Key), maxKey)
		case len(n.UID) > maxUID:
			return nil, errTooLong(e, "uid", len(n.UID), maxUID)
		case len(n.Version) > maxSmall:
			return nil, errTooLong(e, "version", len(n.Version), maxSmall)
		}
		v, err := converge.ParseVersion(n.Version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.GetType(), err)
		}
		entries = append(entries, converge.Entry{
			Key: converge.Key(n.Key), State: converge.State{UID: n.UID, Version: v},
		})
	}
	return converge.BucketEntries{Facet: facet, Resync: h.Resync, Bucket: converge.Bucket(h.Bucket), Entries: entries}, nil
}

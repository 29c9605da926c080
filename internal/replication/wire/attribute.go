package wire

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/cloudevents/sdk-go/binding/format/protobuf/v2/pb"

	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/jsonsize"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/base/strictjson"
	"github.com/argocd-agent-mesh/argocd-agent-mesh/internal/replication/converge"
)

func setText(e *pb.CloudEvent, name, value string) {
	if value == "" {
		return
	}
	e.Attributes[name] = &pb.CloudEventAttributeValue{
		Attr: &pb.CloudEventAttributeValue_CeString{CeString: value},
	}
}

func setKey(e *pb.CloudEvent, f converge.Facet, k converge.Key, seq uint64) {
	setText(e, attrFacet, string(f))
	setText(e, attrKey, string(k))
	if seq > 0 {
		setText(e, attrSeq, strconv.FormatUint(seq, 10)) // a CloudEvents integer has 32 bits
	}
}

func setRevision(e *pb.CloudEvent, revision uint64) {
	if revision > 0 {
		setText(e, attrRevision, strconv.FormatUint(revision, 10))
	}
}

func setState(e *pb.CloudEvent, s converge.State) {
	setText(e, attrUID, s.UID)
	e.Attributes[attrVersion] = &pb.CloudEventAttributeValue{
		Attr: &pb.CloudEventAttributeValue_CeBytes{CeBytes: s.Version[:]},
	}
}

func setBytes(e *pb.CloudEvent, data []byte) {
	setText(e, attrType, "application/json")
	e.Data = &pb.CloudEvent_BinaryData{BinaryData: data}
}

func setJSON(e *pb.CloudEvent, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	setBytes(e, data)
	return nil
}

// text returns a text of the peer's, which may be so long and no longer.
func text(e *pb.CloudEvent, name string, limit int) (string, error) {
	s := e.GetAttributes()[name].GetCeString()
	if len(s) > limit {
		return "", errTooLong(e, name, len(s), limit)
	}
	return s, nil
}

// keyOf returns which object an event is about.
func keyOf(e *pb.CloudEvent) (converge.Facet, converge.Key, error) {
	facet, err := text(e, attrFacet, maxFacet)
	if err != nil {
		return "", "", err
	}
	key, err := text(e, attrKey, maxKey)
	return converge.Facet(facet), converge.Key(key), err
}

func unmarshal(e *pb.CloudEvent, v any) error {
	if err := jsonsize.CheckValues(e.GetBinaryData()); err != nil { // before they take memory
		return fmt.Errorf("%s: %w", e.GetType(), err)
	}
	if err := strictjson.Unmarshal(e.GetBinaryData(), v); err != nil {
		return fmt.Errorf("%s: %w", e.GetType(), err)
	}
	return nil
}

func seqOf(e *pb.CloudEvent) (uint64, error) { return number(e, attrSeq) }

// revisionOf returns the revision of an event, 0 if it has none.
func revisionOf(e *pb.CloudEvent) (uint64, error) {
	if e.GetAttributes()[attrRevision] == nil {
		return 0, nil
	}
	return number(e, attrRevision)
}

// number returns the decimal number of an attribute.
func number(e *pb.CloudEvent, name string) (uint64, error) {
	decimal, err := text(e, name, maxSmall)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(decimal, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", e.GetType(), name, err)
	}
	return n, nil
}

func stateOf(e *pb.CloudEvent) (converge.State, error) {
	uid, err := text(e, attrUID, maxUID)
	if err != nil {
		return converge.State{}, err
	}
	s := converge.State{UID: uid}
	v := e.GetAttributes()[attrVersion].GetCeBytes()
	if len(v) != len(s.Version) {
		return s, fmt.Errorf("%s: version: want %d bytes, not %d", e.GetType(), len(s.Version), len(v))
	}
	s.Version = converge.Version(v)
	return s, nil
}

func seqAndState(e *pb.CloudEvent) (uint64, converge.State, error) {
	seq, err := seqOf(e)
	if err != nil {
		return 0, converge.State{}, err
	}
	state, err := stateOf(e)
	return seq, state, err
}

func resultOf(e *pb.CloudEvent) (converge.Result, error) {
	name, err := text(e, attrResult, maxSmall)
	if err != nil {
		return converge.Result{}, err
	}
	code, err := converge.ParseCode(name)
	return converge.Result{
		Code: code, Absent: e.GetAttributes()[attrAbsent].GetCeBoolean(),
		Reason: cut(e.GetAttributes()[attrReason].GetCeString(), maxReason),
	}, err
}
